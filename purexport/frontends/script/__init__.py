"""The capture route for scripts: TorchScript is interpreted once, with the facts that are known at export."""
