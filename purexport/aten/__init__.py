"""The neutral graph: calls of ATen operators by their schemas, whichever front end recorded them."""
