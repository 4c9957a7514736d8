"""From a torch model to the neutral graph: two front ends, one result."""
