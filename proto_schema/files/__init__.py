"""Models and files: load and save, in steps that lose nothing."""
