"""Rules of the layers of networks: convolution, pooling, normalization, attention, recurrence, loss, dropout."""
