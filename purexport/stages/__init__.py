"""The stages of an export, a file each; `pipeline.py` calls them in order.

A stage is a function of the run and of what the stage before it returned.  It says that it begins, and returns one
value, which leads back to all earlier ones.  Nothing but the run and that value is handed on.
"""
