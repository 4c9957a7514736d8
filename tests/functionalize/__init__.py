"""Programs that write in place."""
