# The graph of all targets, as the experiment files describe it.

import atexit
import gc
from pathlib import Path

from fedrepro.workflow.again import Again
from fedrepro.workflow.clock import bring_back
from fedrepro.workflow.graph import open_graph, show_holes
from fedrepro.workflow.image import IMAGE, expect_image
from fedrepro.workflow.killed import forget_dead_calls, keep_outlived
from fedrepro.workflow.outside import name_user, outlive_readers
from fedrepro.workflow.reasons import shorten
from fedrepro.workflow.slurm import keep_asking
from fedrepro.workflow.wake import once_a_second
from fedrepro.cli.warm_server import open_warm_start
from fedrepro.provenance.syntax import remember
from snakemake.resources import Resources

outlive_readers()
name_user()
if workflow.is_main_process:
    forget_dead_calls()
    expect_image(workflow)

# The graph is millions of long-lived objects. Searching them for garbage took a tenth of the time.
gc.set_threshold(50_000)

GRAPH = open_graph(config)
AGAIN = Again(GRAPH, workflow)
if workflow.is_main_process:
    shorten(workflow, AGAIN.reasons)

# The default resources of the profile and the command line.
DEFAULTS = Resources.from_mapping(workflow.resource_settings.default_resources or {})


wildcard_constraints:
    dataset=r"[A-Za-z0-9_.-]+",
    partition=r"[A-Za-z0-9_.-]+",
    setting=r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.@-]+",
    method=r"[A-Za-z0-9_.@+-]+",
    seed=r"[0-9]+",
    scale=r"demo|compact|paper",
    system=r"[A-Za-z0-9_.-]+",
    item=r"[A-Za-z0-9_.-]+",
    study=r"[a-z0-9_]+",
    part=r"[A-Za-z0-9.-]+_[0-9]+x[0-9]+",
    seeds=r"[0-9]+(-[0-9]+)+",
    samples=r"[0-9]+",
