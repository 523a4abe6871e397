"""Folders on disk <-> models."""
