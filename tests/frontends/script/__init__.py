"""Scripts: what their interpretation computes, records and refuses."""
