"""What is known of each ATen operator beyond its schema: one declaration per operator."""
