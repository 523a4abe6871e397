"""Where prepared data lies between runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(given: Path | None = None) -> Path:
    """--cache, else $MINIBERT_CACHE, else the user's cache folder."""
    if given is not None:
        return given
    if place := os.environ.get("MINIBERT_CACHE"):
        return Path(place)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "minibert"
