"""The number of processor cores that this process may use."""

import math
import os
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")


def usable_cores() -> int:
    """How many cores count: of this machine, the affinity's (`taskset`), within the quota.

    The quota is that of the process's control groups, as `docker --cpus` and SLURM set it.
    """
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        allowed = os.cpu_count() or 1
    return max(1, math.ceil(min(allowed, _quota())))


def _quota() -> float:
    """The least number of cores of this process's groups; infinite without a limit."""
    try:
        lines = OWN_GROUP.read_text(encoding="utf-8").splitlines()
    except OSError:
        return math.inf
    least = math.inf
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if not kinds or "cpu" in kinds.split(","):
            top = GROUPS / kinds
            for folder in (inside := top / path.lstrip("/"), *inside.parents):
                if not folder.is_relative_to(top):
                    break
                least = min(least, _limit(folder))
    return least


def _limit(folder: Path) -> float:
    """A group's own limit, by version 2 (`cpu.max`) or 1 of Linux's control groups."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text(encoding="ascii")
            period = (folder / "cpu.cfs_period_us").read_text(encoding="ascii")
        share = int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # ValueError: "max"
        return math.inf
    return share if share > 0 else math.inf
