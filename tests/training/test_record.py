"""The log's numbers, read when it is their turn and no sooner."""

import errno
import json
import math
import threading
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator

from minibert.corpus.batches import Cursor
from minibert.errors import UserError
from minibert.training.loop import Step
from minibert.training.record import MOST_UNREAD, POINTS, Record, trend
from minibert.training.watch import Finding, Watch


def step(number, loss=2.0, norm=1.0, finite=None):
    losses = torch.tensor([loss, 0.5])
    good = math.isfinite(loss) and math.isfinite(norm) if finite is None else finite
    return Step(
        number, losses, torch.tensor(norm), 0.5, number / 1000, 64, Cursor(2, 3, number), torch.tensor(good)
    )  # fmt: skip


@pytest.fixture
def record(tmp_path):
    return Record(
        tmp_path, Accelerator(cpu=True), terms=("a", "b"), lr=1e-3, log_every=10, tracker="none", before=None,
        watch=Watch(("a", "b")), warn=print, measured=("loss", "dev loss"),
    )  # fmt: skip


def test_lines_have_the_steps_numbers(record, tmp_path):
    for number in range(1, 22):
        record.step(step(number), epoch=2, tokens=64 * number)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 10, 20]
    wanted = {"epoch": 2, "loss": 2.5, "a": 2.0, "b": 0.5, "lr": 5e-4, "grad_norm": 1.0, "tokens": 640}
    assert {key: lines[1][key] for key in wanted} == wanted


@pytest.mark.parametrize("bad", [{"loss": math.nan}, {"norm": math.inf}])
def test_a_step_that_spoilt_the_weights_is_refused_before_anything_is_saved(record, tmp_path, bad):
    for number in range(1, 14):
        record.step(step(number), epoch=0, tokens=0)
    record.step(step(14, **bad), epoch=0, tokens=0)  # nobody looks yet: a GPU is not waited for
    record.step(step(15, loss=math.nan), epoch=0, tokens=0)
    with pytest.raises(UserError, match="batch 14: step 14 is not finite"):
        record.check()


def test_a_step_that_spoilt_the_weights_is_refused_at_the_next_line(record, tmp_path):
    record.step(step(1), epoch=0, tokens=0)
    record.step(step(2, loss=math.nan), epoch=0, tokens=0)
    for number in range(3, 10):
        record.step(step(number, loss=math.nan), epoch=0, tokens=0)
    with pytest.raises(UserError, match="step 2 is not finite"):
        record.step(step(10, loss=math.nan), epoch=0, tokens=0)
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 1


def test_an_overflow_that_the_scaler_mended_is_none(record):
    record.step(step(1, norm=math.inf, finite=True), epoch=0, tokens=0)
    record.check()


def test_steps_do_not_pile_up(tmp_path):
    record = Record(
        tmp_path, Accelerator(cpu=True), terms=("a", "b"), lr=1e-3, log_every=10**6, tracker="none", before=None,
        watch=Watch(("a", "b")), warn=print, measured=("loss", "dev loss"),
    )  # fmt: skip
    for number in range(2, 3 * MOST_UNREAD):
        record.step(step(number), epoch=0, tokens=0)
        assert len(record.unread) < MOST_UNREAD


def test_findings_are_said_and_logged_in_order_whenever_somebody_looks(tmp_path):
    """Looking more often (for a signal's checkpoint) changes no line."""

    def lines(folder, looks):
        folder.mkdir()
        said = []
        record = Record(
            folder, Accelerator(cpu=True), terms=("a", "b"), lr=1e-3, log_every=10, tracker="none", before=None,
            watch=Watch(("a", "b")), warn=said.append, measured=("loss", "dev loss"),
        )  # fmt: skip
        for number in range(1, 91):
            record.step(step(number, loss=2.0 if number < 75 else 9.0), epoch=0, tokens=0)
            if number in looks:
                record.check()
        content = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        return said, [{key: value for key, value in line.items() if key != "tokens_per_second"} for line in content]

    said, found = lines(tmp_path / "a", ())
    assert lines(tmp_path / "b", range(90)) == (said, found)
    (warning,) = (line for line in found if "warning" in line)
    assert warning["warning"] == "loss-jump"
    assert [warning["message"] in text and f"step {warning['step']}" in text for text in said] == [True]
    assert [line["step"] for line in found] == sorted(line["step"] for line in found)


def test_a_failure_is_logged(record, tmp_path):
    record.step(step(1), epoch=0, tokens=64)
    with pytest.raises(UserError), record.noting_failure():
        record.step(step(10, loss=math.nan), epoch=0, tokens=64)
    assert json.loads((tmp_path / "log.jsonl").read_text().splitlines()[-1])["error"].startswith(
        "step 10 is not finite"
    )


def test_a_run_that_goes_on_has_exactly_the_lines_of_its_checkpoint(record, tmp_path):
    record.step(step(1), epoch=0, tokens=64)
    record.evaluation(1, {"loss": 1.0})
    before = json.loads(json.dumps(record.state()))
    written = (tmp_path / "log.jsonl").read_text()
    record.evaluation(1, {"loss": 1.0})  # after the checkpoint, at the same step
    record.note_findings([Finding(1, "kind", "text")])
    again = Record(
        tmp_path, Accelerator(cpu=True), terms=("a", "b"), lr=1e-3, log_every=10, tracker="none", before=before,
        watch=Watch(("a", "b"), state=before["watch"]), warn=print, measured=("loss", "dev loss"),
    )  # fmt: skip
    assert (tmp_path / "log.jsonl").read_text() == written
    assert again.state() == before


def test_log_on_a_full_disk_is_named(record):
    record.path = Path("/dev/full")
    with pytest.raises(UserError, match="/dev/full: cannot be written: No space left on device\n  fix: make room"):
        record.step(step(1), epoch=0, tokens=0)


def test_tracker_on_a_full_disk_is_named_and_its_thread_says_nothing(record, tmp_path, monkeypatch, capsys):
    """tensorboard's thread ends with a traceback, and what it met is raised here too."""

    def full(values, step):
        def write():
            raise OSError(errno.ENOSPC, "No space left on device")

        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
        write()

    monkeypatch.setattr(record.accelerator, "log", full)
    hook = threading.excepthook
    with pytest.raises(UserError, match=r"\(none\): cannot be written: No space left on device"):
        record.evaluation(0, {"loss": 1.0})
    assert threading.excepthook is hook
    assert "Traceback" not in capsys.readouterr().err


# ---- for people


def test_people_see_a_smooth_loss_its_trend_and_the_newest_score_beside_the_best(record):
    for number in range(1, 101):
        shown = record.step(step(number, loss=5 - number / 50), epoch=0, tokens=64 * number)
        if number == 60:
            record.evaluation(number, {"loss": 3.5})
        if number == 80:
            record.evaluation(number, {"loss": 3.75})
            # at once, not with the next line: what a bar was given says it
            assert shown.parts[-2:] == ("dev loss 3.75 (step 80)", "best 3.5")
    # the mean of the last twenty steps, of the first term, which a measurement has too
    assert shown.parts == ("step 100", "a 3.190 (20-step mean) falling", "dev loss 3.75 (step 80)", "best 3.5")
    assert (shown.more, shown.speed[-9:]) == ("lr 5.00e-04", " tokens/s")
    assert shown.curve[0] == pytest.approx(4.98)
    assert shown.curve[-1] == pytest.approx(3.19)


def test_people_see_no_score_of_the_model_before_its_first_step(record):
    record.evaluation(0, {"loss": 6.5})
    shown = record.step(step(1), epoch=0, tokens=64)
    assert shown.parts == ("step 1", "a 2.000")
    record.evaluation(1, {"loss": 7.0})
    assert shown.parts[2:] == ("dev loss 7 (step 1)", "best 7")


def test_people_see_a_speed_over_a_fair_time(record, tmp_path, monkeypatch):
    """The first step waits for more than the training, the last line may stand for one step."""
    now = [record.clock]
    monkeypatch.setattr("minibert.training.record.time.monotonic", lambda: now[0])
    record.log_every = 1
    speeds = []
    for number, seconds in enumerate([100, *[10] * 6, 1], 1):
        now[0] += seconds
        speeds.append(record.step(step(number), epoch=0, tokens=64 * number).speed)
        with record.pause():
            now[0] += 1000
    said = [0.64, 6.4, 6.4, 6.4, 6.4, 6.4, 6.4, 4 * 64 / 31]
    assert speeds == [f"{speed:,.0f} tokens/s" for speed in said]
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["tokens_per_second"] for line in lines] == [0.6, 6.4, 6.4, 6.4, 6.4, 6.4, 6.4, 64.0]


def test_the_curve_stays_short_in_a_long_run(tmp_path):
    record = Record(
        tmp_path, Accelerator(cpu=True), terms=("a", "b"), lr=1e-3, log_every=1, tracker="none", before=None,
        watch=Watch(("a", "b")), warn=print, measured=("loss", "dev loss"),
    )  # fmt: skip
    for number in range(1, 1001):
        shown = record.step(step(number), epoch=0, tokens=0)
    assert POINTS <= len(shown.curve) <= POINTS + 1


def test_a_run_that_goes_on_knows_its_best_score(record, tmp_path):
    record.evaluation(1, {"loss": 2.0})
    record.evaluation(2, {"loss": 3.0})
    record.evaluation(3, {"loss": math.nan})
    record.step(step(10), epoch=0, tokens=64)
    before = record.state()
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"step": 11, "eval": {"loss": 1.0}}\n')  # that the run will come to once more
    again = Record(
        tmp_path, Accelerator(cpu=True), terms=("a", "b"), lr=1e-3, log_every=10, tracker="none", before=before,
        watch=Watch(("a", "b"), state=before["watch"]), warn=print, measured=("loss", "dev loss"),
    )  # fmt: skip
    assert again.step(step(20), epoch=0, tokens=0).parts[2:] == ("best 2",)


def test_a_log_that_somebody_has_changed_stops_no_run(record, tmp_path):
    record.evaluation(1, {"loss": 2.0})
    (tmp_path / "log.jsonl").write_text('{"step": 1, "eval"\n[1]\n{"step": 1, "eval": [2]}\n')
    Record(
        tmp_path, Accelerator(cpu=True), terms=("a", "b"), lr=1e-3, log_every=10, tracker="none",
        before={"lines": 3}, watch=Watch(("a", "b")), warn=print, measured=("loss", "dev loss"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("before", "now", "word"),
    [
        ([5.0, 5.2] * 20, [4.0, 4.2] * 10, "falling"),
        ([4.0, 4.2] * 20, [5.0, 5.2] * 10, "rising"),
        ([4.0, 5.0] * 20, [4.1, 5.0] * 10, "level"),
        ([4.0] * 20, [4.0] * 20, "level"),
    ],
)
def test_trend_is_more_than_noise(before, now, word):
    assert trend(before, now) == word
