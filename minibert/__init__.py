"""From raw text to a BERT, and from a BERT to an answer."""

from importlib.metadata import version

__version__ = version("minibert")
