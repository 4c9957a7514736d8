"""What all routes use: the request, its arguments and names, and the tensors that a model owns."""
