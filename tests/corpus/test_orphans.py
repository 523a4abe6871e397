"""Worker processes end where the process that has started them is killed."""

import subprocess
import sys

import pytest

POOL = """
from itertools import repeat
from minibert.corpus.store import _tokenised
from minibert.tokenization.tokenizer import SPECIAL_TOKENS, BertTokenizer

if __name__ == "__main__":
    tokenizer = BertTokenizer([*SPECIAL_TOKENS, "a"], lowercase=True)
    parts = _tokenised(repeat(([["a b c."]], False)), tokenizer, language="en", words=False, workers=3)
    for number in range(2000):  # until the workers have begun, and have enough to do
        next(parts)
    print("ready", flush=True)
    while True:
        next(parts)
"""
LOADERS = """
import time
import numpy as np
from minibert.corpus.batches import Cursor, load_steps

class Endless:
    batch_size = 2
    def batches(self, cursor):
        while True:
            yield np.arange(2), cursor
    def num_tokens(self, rows):
        return len(rows)

class Rows:
    def __getitem__(self, rows):
        return {"rows": rows}

if __name__ == "__main__":
    steps = load_steps(Endless(), Rows(), Cursor(), micro_batch_size=1, num_workers=2)
    next(steps)
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("script", [POOL, LOADERS], ids=["pool", "loaders"])
def test_workers_end_with_a_parent_that_is_killed(tmp_path, script):
    (tmp_path / "script.py").write_text(script, "utf-8")
    with subprocess.Popen([sys.executable, str(tmp_path / "script.py")], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        process.kill()
        process.communicate(timeout=60)  # ends when nobody has its standard output any more: the last worker has ended
