"""How many cores count."""

import math
import os
from pathlib import Path

import pytest

from fedrepro.support import cores
from fedrepro.support.cores import usable_cores

AFFINITY = len(os.sched_getaffinity(0))


@pytest.fixture(autouse=True)
def no_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(cores, "OWN_GROUP", tmp_path / "own")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_those_that_the_process_may_run_on() -> None:
    assert usable_cores() == AFFINITY
    first = min(os.sched_getaffinity(0))
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {first})
        assert usable_cores() == 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize(("count", "expected"), [(5, 5), (None, 1)])
def test_without_an_affinity_all_cores_count(
    monkeypatch: pytest.MonkeyPatch, count: int | None, expected: int
) -> None:
    """As on macOS."""
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    assert usable_cores() == expected


@pytest.mark.parametrize(
    ("own", "limits", "expected"),
    [
        ("0::/job\n", {"job/cpu.max": "50000 100000"}, 1),
        ("0::/job\n", {"job/cpu.max": "max 100000"}, math.inf),
        ("0::/job:of:a/pod\n", {"job:of:a/cpu.max": "100000 100000"}, 1),
        ("0::/job/step\n", {"job/cpu.max": "100000 100000", "job/step/cpu.max": "max 100000"}, 1),
        # In a container the group's folder may not be visible; the mounted one is its own.
        ("0::/docker/abc\n", {"cpu.max": "100000 100000"}, 1),
        (
            "4:memory:/x\n3:cpu,cpuacct:/job\n0::/\n",
            {
                "cpu,cpuacct/job/cpu.cfs_quota_us": "100000\n",
                "cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
            },
            1,
        ),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, math.inf),
        ("0::/../other\n", {"cpu.max": "nonsense"}, math.inf),
    ],
)
def test_no_more_than_the_quota(
    own: str, limits: dict[str, str], expected: float, tmp_path: Path
) -> None:
    write(tmp_path / "own", own)
    for name, text in limits.items():
        write(tmp_path / "cgroup" / name, text)
    assert usable_cores() == min(AFFINITY, expected)


@pytest.mark.parametrize(
    ("quota", "expected"), [(0.25, 1), (1, 1), (1.5, 2), (2, 2), (2.25, 3), (7.9, 8), (9, 8)]
)
def test_a_part_of_a_core_counts_as_one(
    quota: float, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    write(tmp_path / "own", "0::/job\n")
    write(tmp_path / "cgroup/job/cpu.max", f"{100000 * quota:.0f} 100000")
    assert usable_cores() == expected
