"""The capture route that uses torch.jit.trace."""
