"""The network; it knows tensors only."""
