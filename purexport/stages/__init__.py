"""The stages of an export, one file each; `driver.py` calls them in order.

A stage is a function of the run and of the previous stage's result.  It reports that it begins, and returns one value,
which refers to all earlier results.  Invariant: stages exchange nothing except the run and that value.
"""
