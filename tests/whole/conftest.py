"""The site of committed results, once for all tests here, also when several processes run them."""

import fcntl
import gc
import sys
from pathlib import Path

import pytest

from fedrepro.config.loading import load
from fedrepro.config.workbench import Workbench
from support.places import ROOT


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> tuple[Path, Workbench]:
    """The site's folder, and the workbench that it was made from."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import whole_site
    finally:
        sys.path.remove(str(ROOT / "scripts"))
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
