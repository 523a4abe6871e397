"""One minibert command for quality.py, in which minutes are minutes of computing and an experiment may be switched on.

    _quality_run.py VARIANTS pretrain|finetune ...        VARIANTS: JSON, {} for none; see _quality_variants.py

The clock of `--minutes` is the processor time of this process: a run is as long whatever else the machine does, and 10
minutes of one core are as much as 5 of two. What other processes do (reading and tokenising text) does not count.
"""

from __future__ import annotations

import json
import sys
import time
from types import SimpleNamespace

import _quality_variants

import minibert.pretrain
from minibert.cli import main
from minibert.training import optim

if __name__ == "__main__":
    computing = SimpleNamespace(monotonic=time.process_time)
    minibert.pretrain.time = optim.time = computing  # type: ignore[assignment]
    for name, value in json.loads(sys.argv[1]).items():
        getattr(_quality_variants, name)(value)
    sys.argv = ["minibert", *sys.argv[2:]]
    main()
