"""Contextual vectors of texts: in Python, and for whole files."""
