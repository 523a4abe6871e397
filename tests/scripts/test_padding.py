"""scripts/padding.py: shares of padding by hand, and a table of a small file."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "padding.py"


@pytest.fixture(scope="module")
def script(load_script):
    return load_script("padding")


def test_shares_by_hand(script):
    def make(lengths):
        """Rows as long as they say, rounded up to a multiple of four."""
        width = -(-max(lengths) // 4) * 4
        keep = torch.arange(width) < torch.tensor(lengths)[:, None]
        mask = None if bool(keep.all()) else keep.long()
        return {"input_ids": torch.zeros(len(lengths), width), "attention_mask": mask, "num_tokens": sum(lengths)}

    # 20 tokens: in this order 8 + 16 are computed, 6 + 16 unrounded; at random 8s meet a shorter one; at most 4 * 10
    rows = [2, 3, 8, 7]
    line = script.row("name", make, rows, [[2, 3], [8, 7]], 4, 10)
    assert line == ["name", "5", "16.7%", "9.1%", "37.5%", "50.0%"]
    assert script.row("full", make, [8, 8], [[8, 8]], 2, 8) == ["full", "8", *["0.0%"] * 4]


def test_a_table_of_text_and_rows(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "."]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n", "utf-8")
    (tmp_path / "raw.txt").write_text("\n\n".join("a b .\n" * n for n in range(20, 60)) + "\n", "utf-8")
    (tmp_path / "train.csv").write_text("text,label\n" + "a b,x\nb b b b b b,y\n" * 20, "utf-8")
    command = [sys.executable, str(SCRIPT), "vocab.txt", "text=raw.txt", "cls=train.csv"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2 + 4 + 2
    assert lines[2].startswith("raw.txt: pairs, short 0.1")
    assert lines[6].split()[-5:] == ["6", "25.0%", "25.0%", "25.0%", "95.3%"]  # 4 tokens and 8, both 8 wide
