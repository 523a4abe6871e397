"""Text <-> ids with offsets; training a vocabulary."""
