"""The capture route that uses torch.export."""
