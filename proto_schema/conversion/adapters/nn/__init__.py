"""Changes of the operators of networks' layers between opsets."""
