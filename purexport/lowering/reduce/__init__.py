"""Rules of operators that reduce, accumulate, count or order along axes."""
