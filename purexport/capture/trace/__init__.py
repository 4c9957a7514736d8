"""The route by torch.jit.trace."""
