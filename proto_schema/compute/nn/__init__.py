"""What operators of neural networks compute: convolution, pools, products, norms, attention, recurrence, losses."""
