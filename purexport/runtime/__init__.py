"""What an exported program does beyond its bytes: it runs, is compared with the model, and is shown to people."""
