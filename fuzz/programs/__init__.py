"""Random torch programs, exported on every route and compared with torch and with each other (docs/development/fuzzing.md)."""
