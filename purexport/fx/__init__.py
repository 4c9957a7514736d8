"""torch.fx graphs to the neutral graph: the programs of torch.export, and the bodies of decompositions."""
