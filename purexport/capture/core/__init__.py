"""What all routes share: the request, its arguments and names, and what a model owns."""
