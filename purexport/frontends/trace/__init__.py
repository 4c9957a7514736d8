"""The trace: the model runs once on tensors without data, whose sizes may be symbols."""
