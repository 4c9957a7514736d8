"""Fuzz harnesses for proto_schema's codec: `python -m fuzz HARNESS --seconds 60`.

A harness is a module that opens with its invariant. Its `check` takes any bytes, takes exactly one class of exception
for an answer, and raises `Violation` (or anything else, which is a finding all the same) where the invariant breaks.
With atheris installed coverage guides the mutation; without it `fuzz.engine` mutates seeds, alike for the same seed.
"""
