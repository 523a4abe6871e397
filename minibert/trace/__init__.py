"""One sentence followed through a model step by step, every number taken from the forward pass."""
