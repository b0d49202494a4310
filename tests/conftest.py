"""One thread per test process: two threads on a busy machine collapse."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

pytest_plugins = ["support.synthetic_world"]
