"""torch.fx graphs to the neutral graph: what torch.export records and what decompositions consist of."""
