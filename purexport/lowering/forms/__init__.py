"""Operators written with others, for dtypes that a runtime has no kernel of."""
