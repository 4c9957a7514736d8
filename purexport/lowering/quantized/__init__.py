"""Rules of quantized tensors and of PT2E graphs."""
