"""What holds in every test process: one thread, as two on a busy machine collapse."""

import gc
import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

# Properties are asked for, not times: on a busy machine any example may take long.
settings.register_profile("without deadline", deadline=None)
settings.load_profile("without deadline")

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
# torch.compile else starts processes that import torch, which takes longer than what is compiled.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
# A tokenizer that is not there would else be asked of a hub, again and again for a minute.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# No test pulls the plug: what a crash may leave is seen by `support/crashing_disk.py`. Waiting for
# the disk at every file of every run takes longer than much of what is tested.
os.fsync = lambda descriptor: None
os.sync = lambda: None

LONG = ("browser", "workflow")  # folders

pytest_plugins = ["support.synthetic_world"]


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is there after collection stays: modules and thousands of tests.

    Each full garbage collection would go through all of it, for a tenth of the suite's time.
    """
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests come first. Of several processes none then waits for the last long one."""
    items.sort(key=lambda item: item.path.parent.name not in LONG)


def pytest_runtest_teardown() -> None:
    """A run may leave two threads: a process that a later test forks would wait for the second."""
    torch = sys.modules.get("torch")
    if torch and torch.get_num_threads() != 1:
        torch.set_num_threads(1)


def pytest_unconfigure() -> None:
    gc.unfreeze()  # else libraries report as leaked what is only frozen
