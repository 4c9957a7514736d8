"""The fuzz harnesses, run shortly, and what they found."""
