"""What operators on strings compute."""
