"""Folders that `language_model` and `pretrained_model` wrote run again: calls as the model has them, `generate`."""
