"""Rules of operators that make, move, take or write elements."""
