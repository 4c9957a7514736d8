"""The route of scripts: TorchScript is interpreted once, on what is known at export."""
