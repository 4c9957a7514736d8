"""From a model to the neutral graph."""
