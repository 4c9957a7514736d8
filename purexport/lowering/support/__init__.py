"""What rules of several themes share; it declares no rules."""
