#!/usr/bin/env python3
"""On a GPU: tokens a second and MFU of BERT-base and BERT-large at 128 and 512 tokens, beside transformers' Trainer.

    scripts/bench_gpu.py CORPUS... [--peak-tflops N] [--sizes base-128 ...] [--compile] [--json FILE]

bench_pretrain.py for each size, in bfloat16, three rounds in turns; under ten minutes in all. MFU is the model's FLOPs
a second (6 N + 12 L D T + the MLM head's on the tokens that go through it) over the GPU's peak for dense bfloat16
products.
Written without a GPU at hand, and not run on one yet.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _bench_common import medians, ratio, spread, table

SIZES = {  # layers, width, heads, length, batch: about 32,768 tokens a step for base, half of that for large
    "base-128": (12, 768, 12, 128, 256), "base-512": (12, 768, 12, 512, 64),
    "large-128": (24, 1024, 16, 128, 128), "large-512": (24, 1024, 16, 512, 32),
}  # fmt: skip
PEAKS = {"H200": 989, "H100": 989, "A100": 312, "L40S": 362, "L4": 121, "A10": 125, "RTX 4090": 165}  # TFLOP/s, makers'
SECONDS = 150  # for one size
KEY = "tokens_per_second"


def peak_of(device: str) -> float | None:
    """The maker's figure for this GPU in FLOP a second, dense bfloat16; None where it is not known here."""
    return next((1e12 * peak for name, peak in PEAKS.items() if name in device), None)


def measure(corpus: list[str], size: str, compiled: bool) -> dict[str, Any]:
    """One run of bench_pretrain.py: what it writes as JSON."""
    layers, width, heads, length, batch = SIZES[size]
    with tempfile.TemporaryDirectory(prefix="bench-gpu-") as folder:
        found = Path(folder) / "found.json"
        command = [
            sys.executable, str(Path(__file__).with_name("bench_pretrain.py")), *corpus, "--layers", str(layers),
            "--hidden-size", str(width), "--heads", str(heads), "--length", str(length), "--batch-size", str(batch),
            "--rounds", "3", "--steps", "20", "--skip", "5", "--peers", "trainer", "--json", str(found),
            *(["--compile"] if compiled else []),
        ]  # fmt: skip
        subprocess.run(command, check=True, timeout=SECONDS, stdout=subprocess.DEVNULL)
        return dict(json.loads(found.read_text("utf-8")))


def rows(size: str, found: dict[str, Any], peak: float | None) -> list[list[str]]:
    """A size's lines of the table."""
    speeds = {name: medians(results, "tokens_per_second") for name, results in found["rounds"].items()}
    lines = []
    for name, speed in speeds.items():
        rate = speed * found["flops_per_token"][name]
        faster = "" if name == "Trainer" else spread(ratio(found["rounds"][name], found["rounds"]["Trainer"], KEY))
        mfu = f"{rate / peak:.1%}" if peak else ""
        lines.append([size, name, f"{speed:,.0f}", f"{rate / 1e12:.0f}", mfu, f"{found['shares'][name]:.0%}", faster])
    return lines


def main() -> None:
    """Measure and print."""
    import torch

    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("corpus", nargs="+", help="text files or folders, as `minibert pretrain` takes them")
    options.add_argument("--sizes", nargs="+", choices=[*SIZES], default=[*SIZES])
    options.add_argument("--peak-tflops", type=float, help="the GPU's peak, where this script does not know it")
    options.add_argument("--compile", action="store_true", help="torch.compile for both")
    options.add_argument("--json", type=Path, metavar="FILE", help="also write every single figure there")
    args = options.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("there is no GPU here: scripts/bench_pretrain.py measures on a CPU")
    device = torch.cuda.get_device_name()
    peak = args.peak_tflops * 1e12 if args.peak_tflops else peak_of(device)
    print(f"{device}, peak {f'{peak / 1e12:.0f} TFLOP/s' if peak else 'not known: give --peak-tflops'}\n")
    found: dict[str, Any] = {}
    lines = []
    for size in args.sizes:
        try:
            found[size] = measure(args.corpus, size, args.compile)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            print(f"{size}: failed ({error})", file=sys.stderr)
            continue
        lines += rows(size, found[size], peak)
        if args.json:  # after each: what was measured is not lost where time runs out
            args.json.write_text(json.dumps({"device": device, "peak": peak, "sizes": found}, indent=1) + "\n", "utf-8")
    table(["", "", "tokens/s", "TFLOP/s", "MFU", "of the machine", "against the Trainer"], lines)


if __name__ == "__main__":
    main()
