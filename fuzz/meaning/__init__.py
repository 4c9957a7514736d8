"""Whether tools keep what a model computes: random graphs, tools, and a comparison of before and after."""
