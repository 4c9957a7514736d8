"""In-place operators and writes through views become pure calls."""
