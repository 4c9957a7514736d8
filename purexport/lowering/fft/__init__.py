"""Rules of discrete and short-time Fourier transforms."""
