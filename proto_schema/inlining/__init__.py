"""What `inliner` is made of: `versions` (may a body stand in a model), `engine` (calls become nodes),
`standard` (operators that the standard defines by others)."""
