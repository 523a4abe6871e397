"""The GPU benchmark's arithmetic; the measuring itself needs a GPU."""

import pytest


@pytest.fixture
def module(load_script):
    return load_script("bench_gpu")


def test_peaks_are_told_from_the_device_name(module):
    assert module.peak_of("NVIDIA H200") == 989e12
    assert module.peak_of("NVIDIA L4") == 121e12
    assert module.peak_of("NVIDIA L40S") == 362e12
    assert module.peak_of("another") is None


def test_mfu_is_flops_a_second_over_the_peak(module):
    speeds = {"minibert": [4e5, 5e5, 6e5], "Trainer": [2e5, 2e5, 2e5]}
    found = {
        "rounds": {name: [{"tokens_per_second": speed} for speed in each] for name, each in speeds.items()},
        "flops_per_token": {"minibert": 6e8, "Trainer": 7e8}, "shares": {"minibert": 0.61, "Trainer": 0.4},
    }  # fmt: skip
    ours, theirs = module.rows("base-128", found, 1e15)
    assert ours == ["base-128", "minibert", "500,000", "300", "30.0%", "61%", "2.50x (2.00 - 3.00)"]
    assert theirs == ["base-128", "Trainer", "200,000", "140", "14.0%", "40%", ""]
