"""Folders of models, changed by random sequences of our writers and of others (docs/development/fuzzing.md)."""
