"""The tour as a page: whole tables of tokens, the first columns of wide ones, and a picture of all of them."""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path

import numpy as np
from torch import Tensor

from minibert.trace.steps import Matrix, Tour, chosen, labels, num
from minibert.view.page import write_page

MOST_COLUMNS = 10  # of a table of features
PLUS, MINUS = (47, 128, 200), (214, 112, 26)  # red, green, blue; readable on light and on dark


def trace_page(tour: Tour, model: Path, out: Path) -> None:
    """Write the page."""
    write_page(
        out, "trace.html", scripts=("trace.js",), tour=tour, config=tour.passed.config, model=model.resolve().name,
        row=tour.passed.row, names=labels(tour.passed.row), num=num, columns_of=columns_of, depth=depth,
        picture=picture,
    )  # fmt: skip


def columns_of(matrix: Matrix) -> list[int | None]:
    """Those that are written out; None for what is left out. Tokens are all there."""
    count = matrix.values.shape[1]
    return chosen(count, count if matrix.columns else MOST_COLUMNS)


def depth(values: Tensor) -> Tensor:
    """How deeply each number is coloured, 0 to 1: by the root of its size, so that small ones are seen."""
    sizes = values.abs()
    return (sizes / sizes.max().clamp(min=1e-30)).sqrt()


def picture(values: Tensor) -> str:
    """All of a matrix as the address of an image, a pixel a number."""
    pixels = np.zeros((*values.shape, 4), dtype=np.uint8)
    pixels[..., :3] = np.where((values < 0).numpy()[..., None], MINUS, PLUS)
    pixels[..., 3] = np.rint(255 * depth(values).numpy())
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode()


def png(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    """pixels (rows, columns, 4), red, green, blue and opacity, as a PNG file."""
    rows, columns, _ = pixels.shape
    lines = np.concatenate((np.zeros((rows, 1), np.uint8), pixels.reshape(rows, -1)), axis=1)  # 0: no filter
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 6, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    )
    chunks = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
