"""Temporary replacements of parts of torch; `table.py` lists all of them.  Afterwards everything is restored."""
