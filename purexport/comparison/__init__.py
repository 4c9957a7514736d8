"""Where a file differs from the model: the first wrong value, the node that makes it, and torch's line behind it.

`torch_values` runs the neutral graph in torch, which gives torch's value for the results of rules (`anchors`).
`file_values` runs a file and keeps every value.  `matching` pairs the two: by name where the file is what an export
writes, by content for files of others.  `located` finds the first wrong value and its node, with what each part of the
file is off by itself (`contributions`), and with scores that tie (`ties`).  `departures` finds the module from which on
a model computes something else than was recorded of it.  `differing` says in what two nodes differ, `compared` goes
through all of that, and `result` says it, with numbers of each output (`measures`).  `repro` writes the node with its
inputs into a folder.
"""
