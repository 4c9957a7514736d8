"""The rules that `proto_schema.checker` applies, a file a theme: tensors, nodes and attributes, graphs, models, types.

Every rule raises `Problem`; the messages on the way to the offending one are entered with `inside`, which adds the
step to the problem's path only when one passes by. `checker` turns a problem into a CheckError.
"""
