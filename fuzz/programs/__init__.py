"""Random torch programs, exported on every route and compared (docs/development/fuzzing.md)."""
