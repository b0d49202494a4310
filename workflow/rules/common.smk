# The graph of all targets, as the experiment files describe it.

import atexit
import gc
from pathlib import Path

from fedrepro.cli.warm_server import open_warm_start
from fedrepro.provenance.syntax import remember
from fedrepro.support.papers import rule_files
from fedrepro.workflow import snakemake_patches
from fedrepro.workflow.graph import open_graph
from fedrepro.workflow.rerun_checks import RerunChecks
from fedrepro.workflow.resources import RunResources

snakemake_patches.on_load(workflow)

# The graph is millions of long-lived objects. Searching them for garbage took a tenth of the time.
gc.set_threshold(50_000)

GRAPH = open_graph(config)
RESOURCES = RunResources(GRAPH.bench, snakemake_patches.default_resources(workflow))

# Its functions stand among the inputs of rules, but add none. Snakemake asks for a job's inputs
# before it decides whether to run the job, and these force the job if its output is stale, or if
# Snakemake has no record of it.
RERUN = RerunChecks(GRAPH, workflow)
snakemake_patches.shorten_reasons(workflow, RERUN.reasons)


def start():
    if snakemake_patches.on_start(workflow):
        open_warm_start()


wildcard_constraints:
    dataset=r"[A-Za-z0-9_.-]+",
    partition=r"[A-Za-z0-9_.-]+",
    setting=r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.@-]+",
    method=r"[A-Za-z0-9_.@+-]+",
    # A run of seed 01 would be that of seed 1. Seeds are below 2^32, as `fedrepro run` says.
    seed=r"0|[1-9][0-9]{0,9}",
    scale=r"demo|compact|paper",
    system=r"[A-Za-z0-9_.-]+",
    item=r"[A-Za-z0-9_.-]+",
    study=r"[a-z0-9_]+",
    part=r"[A-Za-z0-9.-]+_[0-9]+x[0-9]+",
    seeds=r"[0-9]+(-[0-9]+)+",
    samples=r"[0-9]+",
