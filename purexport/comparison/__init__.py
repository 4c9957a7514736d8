"""Where a file differs from the model: the first wrong value, the node that makes it, and torch's line behind it.

`torch_values` runs the neutral graph in torch, which gives torch's value for the results of rules (`anchors`).
`file_values` runs a file and keeps every value.  `matching` pairs the two: by name where the file is what an export
writes, by content for files of others.  `located` finds the first wrong value and its node, `causes` why it is wrong,
and `result` says it.  `repro` writes that node with its inputs into a folder.
"""
