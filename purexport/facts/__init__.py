"""What is known of each ATen operator beside its schema: one declaration an operator."""
