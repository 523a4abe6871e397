#!/usr/bin/env python3
"""Both ways between minibert and other versions of transformers: keys, logits, hidden states, attentions, ids.

    scripts/check_transformers.py 4.27.0 5.24.0

Each version gets an environment of its own (torch is this one's); every model class and both norms are written with
random weights by one side and opened by the other. Largest differences are relative to the largest value, where that is
above 1. Exit code 1 where a key does not fit, an id differs, or a difference is above 1e-6 (attentions and logits) or
2e-6 (hidden states of three layers).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import torch
from _transformers_side import HEADS, SHAPE, difference, outputs, randomise

import minibert
from minibert.tokenization.tokenizer import SPECIAL_TOKENS

SIDE = Path(__file__).with_name("_transformers_side.py")
NEEDED_BY_TORCH = (
    "torch", "torchgen", "functorch", "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "filelock", "fsspec",
    "typing_extensions.py",
)  # fmt: skip
TOLERANCE = {"logits": 1e-6, "hidden": 2e-6, "attention": 1e-6}


def environment(version: str, folder: Path) -> Path:
    """A virtual environment with that version of transformers, and this environment's torch. Returns its Python."""
    venv.create(folder, with_pip=True)
    own = Path(torch.__file__).parent.parent
    behind = folder / "behind"
    behind.mkdir()
    for name in (*NEEDED_BY_TORCH, *(path.name for path in own.glob("torch-*.dist-info"))):
        if (own / name).exists():
            (behind / name).symlink_to(own / name)
    next(folder.glob("lib/python*/site-packages")).joinpath("zz_behind.pth").write_text(f"{behind}\n", "utf-8")
    python = folder / "bin" / "python"
    wanted = [f"transformers=={version}", "safetensors"]
    done = subprocess.run(
        [python, "-m", "pip", "install", "-q", "--only-binary=:all:", *wanted],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"transformers {version} does not install here:\n{done.stderr}")
    return python


def write_ours(folder: Path) -> None:
    """Each class with random weights, and what it computes."""
    tokens = [*SPECIAL_TOKENS, "ab", "##a", "b", "a", "今", "天", ",", "!", *(f"[unused{i}]" for i in range(51))]
    tokenizer = minibert.BertTokenizer.from_tokens(tokens, lowercase=True)
    tokenizer.model_max_length = SHAPE["max_position_embeddings"]
    for norm, prefix in (("post", ""), ("pre", "Megatron")):
        extra = {"id2label": {str(i): f"L{i}" for i in range(3)}, "label2id": {f"L{i}": i for i in range(3)}}
        config = minibert.BertConfig(norm=norm, extra=extra, **SHAPE)
        for head in HEADS:
            model = randomise(getattr(minibert, head)(config))
            path = folder / (prefix + head)
            model.save_pretrained(path)
            tokenizer.save_pretrained(path)
            torch.save(outputs(model), path / "expected.pt")
            ids = tokenizer(["Ab今天, ba!"])["input_ids"][0].tolist()
            (path / "ids.json").write_text(json.dumps(ids), "utf-8")


def open_theirs(folder: Path) -> list[dict[str, object]]:
    """What transformers wrote, opened by minibert without a warning."""
    lines: list[dict[str, object]] = []
    for path in sorted(folder.iterdir()):
        from minibert.checkpoint.folder import load_model

        kind = getattr(minibert, path.name.removeprefix("Megatron"))
        model, report = load_model(kind, path)
        keys = {kind: names for kind, names in vars(report).items() if names and kind in ("fresh", "ignored")}
        expected = torch.load(path / "expected.pt", weights_only=True)
        gaps = difference(outputs(model), expected)
        lines.append({"name": path.name, "keys": keys, "same_ids": True, **gaps})
    return lines


def report(version: str, way: str, lines: list[dict[str, object]]) -> bool:
    """One row of the table; whether all of it is well."""
    worst = {kind: max(float(str(line[kind])) for line in lines) for kind in TOLERANCE}
    strange = {line["name"]: line["keys"] for line in lines if line["keys"]}
    ids = all(line["same_ids"] for line in lines)
    good = not strange and ids and len(lines) == 2 * len(HEADS) and all(worst[k] <= TOLERANCE[k] for k in worst)
    gaps = "  ".join(f"{kind} {gap:.1e}" for kind, gap in worst.items())
    print(
        f"{version:8} {way:22} {len(lines)} models  {gaps}  ids {'same' if ids else 'DIFFER'}  keys {strange or 'fit'}"
    )
    return good


def main() -> None:
    """Each version, both ways."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("versions", nargs="+")
    good = True
    for version in options.parse_args().versions:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            python = environment(version, folder / "venv")
            calm = {**os.environ, "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
            write_ours(folder / "ours")
            (folder / "theirs").mkdir()
            done = subprocess.run(
                [python, SIDE, "open", folder / "ours"], env=calm, stdout=subprocess.PIPE, text=True, check=False
            )
            lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
            good &= done.returncode == 0 and report(version, "opens minibert's", lines)
            subprocess.run([python, SIDE, "write", folder / "theirs"], env=calm, check=True)
            good &= report(version, "opened by minibert", open_theirs(folder / "theirs"))
    sys.exit(not good)


if __name__ == "__main__":
    main()
