"""Rules of complex tensors, which are pairs of real ones."""
