"""The route by torch.export."""
