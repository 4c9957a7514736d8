"""The capture route by dispatch: the model runs once on tensors without data, whose sizes may be symbols."""
