"""The tests: rows of data, and one function that runs a row (tests/harness.py)."""
