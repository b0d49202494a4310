"""The site of committed results, once for all tests here, also when several processes run them."""

import fcntl
import gc
from pathlib import Path

import pytest

from fedrepro.config.loading import load
from fedrepro.config.workbench import Workbench
from support.scripts import script


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> tuple[Path, Workbench]:
    """The site's folder, and the workbench that it was made from."""
    whole_site = script("whole_site")
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent  # the same for all processes
    root = shared / "landed"
    start = root / "reports/site/index.html"  # which is written last
    with (shared / "landed.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not start.exists():
            root.mkdir()
            gc.disable()  # what it reads stays until the end: collecting it in between is in vain
            try:
                assert whole_site.write_site(root) == start
            finally:
                gc.enable()
    return start.parent, load(root)
