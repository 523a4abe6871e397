"""Worker processes whose parent has been killed: nobody tells them, and they would stay for ever."""

from __future__ import annotations

import multiprocessing
import os
import threading


def end_with_parent(number: int = 0) -> None:
    """To be called in a worker, once: it ends when the process that has started it does. number: of no meaning."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
