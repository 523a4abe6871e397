"""scripts/baseline_cls.py: the two baselines on a file where their scores are known."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "baseline_cls.py"


def run(folder, *arguments):
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], cwd=folder, capture_output=True, text=True)


def test_baselines_by_hand(tmp_path):
    # Chinese signs are words: 好 alone decides; the pair "not good" turns what the words alone say
    (tmp_path / "train.csv").write_text("s,y\n很好看,pos\n不好,neg\ngood good,pos\nnot good,neg\n很好,pos\n", "utf-8")
    (tmp_path / "test.csv").write_text("s,y\n真不,neg\n好看,pos\nnot good at all,neg\ngood,pos\n", "utf-8")
    done = run(tmp_path, "train.csv", "test.csv", "text_column=s", "label_column=y")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "5 rows to learn from, 4 to measure on, 2 classes",
        "",
        "| baseline | accuracy | macro F1 |",
        "|---|---|---|",
        "| majority (pos) | 0.5000 | 0.3333 |",
        "| naive Bayes, words and pairs | 1.0000 | 1.0000 |",
    ]


def test_mistakes_are_told_in_a_line(tmp_path):
    (tmp_path / "train.csv").write_text("text,label\na,x\nb,y\n", "utf-8")
    for arguments, problem in (
        (["text_colum=s"], "did you mean 'text_column'?"),
        (["multi_label=true"], "one class a text"),
        (["label_column=z"], "no column 'z'"),
    ):
        done = run(tmp_path, "train.csv", "train.csv", *arguments)
        assert (done.returncode, problem in done.stderr, "Traceback" in done.stderr) == (1, True, False)
