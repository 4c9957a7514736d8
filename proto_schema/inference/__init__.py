"""Shape inference: the type, the shape and, of small integer tensors, the content of every value of a graph.

`types` is what is known of a value, `site` what a row sees of a node, `rows` the table of operators, and `walk` carries
it all through the messages of a model.  The files of `rows.FILES` hold the rows, one theme each.  A row is a function
of a `Site` alone, so whoever makes nodes can call it, with or without messages.
"""
