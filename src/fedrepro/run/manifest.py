"""A run's manifest: its configuration, code, machine and, once it is finished, its cost."""

import json
import os
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from fedrepro.config.run_spec import RunSpec
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.data.dataset import PREPARED, open_dataset
from fedrepro.data.partition.partition import Partition
from fedrepro.engine import tree
from fedrepro.methods.personal.partly_shared import keeps_a_part
from fedrepro.provenance import arithmetic, fingerprint, identity, numerics
from fedrepro.provenance.numerics import Numerics
from fedrepro.run import input_artifacts, privacy
from fedrepro.run.assembly import Plan, make_plan, method_of
from fedrepro.run.state import State
from fedrepro.support.errors import UserError
from fedrepro.support.files import sha256_of


def identity_keys(plan: Plan, code: str, ids: Numerics) -> dict[str, Any]:
    """The keys of a manifest that are known before round 1 and determine a result's bits."""
    return {
        **of_spec(plan.spec, code, ids),
        "executor": plan.executor,
        "threads": plan.threads,
    }


def of_spec(spec: RunSpec, code: str, ids: Numerics) -> dict[str, Any]:
    """The part of :func:`identity_keys` that does not need the data."""
    return {
        "run": spec.description(),
        "config_hash": spec.digest,
        "code": code,
        **({"numerics": dict(ids)} if ids else {}),
        "arithmetic": arithmetic.of_spec(spec),
        "device": spec.execution.device.partition(":")[0],  # not which card
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "packages": identity.packages(),
        "hardware": hardware(spec.execution.device),
    }


def origin(spec: RunSpec) -> dict[str, Any]:
    """The origin of the code: commits, and a digest for each file that counted.

    Purely descriptive: ``code`` already covers the files' digests, and equal code may come from
    many commits. Call it before the first round, because a commit may follow.
    """
    files = fingerprint.files_of_code(spec)
    return {"code_files": files, "git": fingerprint.checkouts_of(files, spec.plugins)}


def current_manifest(workbench: Workbench, run: RunKey) -> tuple[dict[str, Any], str]:
    """The part of a run's manifest that is known before its first round; creates nothing.

    Returns:
        The keys with their values, and in words why ``data`` and ``executor`` are missing if they
        are: usually because the data are not prepared.

    Raises:
        UserError: for an unknown setting, method or seed.
    """
    spec = workbench.spec_of(run)
    method_of(spec)  # raises for an unknown method
    code, ids = fingerprint.of_code(spec), numerics.of_run(spec)
    known = of_spec(spec, code, ids) | origin(spec)
    why = ""
    try:
        dataset = open_dataset(spec.setting.dataset, workbench.root / PREPARED)
        partition = Partition.load(workbench.root / spec.setting.partition_path(run.seed))
        loaded = input_artifacts.load(workbench.root, spec, dataset, partition)
        plan = make_plan(spec, dataset, partition, loaded)
        known |= identity_keys(plan, code, ids)
        known["data"] = input_artifacts.data_of_plan(plan, dataset, partition, loaded)
    except UserError as error:
        why = str(error)
    as_read: dict[str, Any] = json.loads(json.dumps(known))
    return as_read, why


def describe(plan: Plan, state: State, staged: Path) -> dict[str, Any]:
    """The outcome of a run, the same for every such run here; ``staged`` has its other files."""
    federation = plan.federation
    params = federation.context.net.trainable(state.server.get("params", {}))
    clients, cohort = federation.context.clients, federation.context.cohort_size
    in_part = keeps_a_part(federation.method, federation.context.net.module)
    private = privacy.spent(federation.method, cohort, clients, state.done)
    return {
        "status": "finished" if state.diverged_at is None else "diverged",
        "diverged_at": state.diverged_at,
        "rounds_done": state.done,
        **({"stopped": state.stopped} if state.stopped else {}),
        **({"went_on_from": state.began} if state.began else {}),
        "clients": clients,
        **({"privacy": private} if private else {}),
        **({"shares_part_of_model": True} if in_part else {}),
        "parameters": sum(leaf.numel() for leaf in tree.leaves(params)),
        "bytes_down": state.bytes_down,
        "bytes_up": state.bytes_up,
        "files": {file.name: sha256_of(file) for file in sorted(staged.iterdir())},
    }


def hardware(device: str) -> dict[str, Any]:
    """The machine and, of a run there, the accelerator: what can change the bits of a result."""
    facts = {**identity.machine(), "cores": os.cpu_count()}
    if device.startswith("cuda"):
        facts["accelerator"] = torch.cuda.get_device_name(device)
    return facts


def is_of_this_kind(manifest: Mapping[str, Any]) -> bool:
    """Return True if the machine and PyTorch of a manifest give the same bits as those here."""
    there = manifest.get("hardware", {})
    if "accelerator" in there and not torch.cuda.is_available():
        return False
    here = hardware("cuda" if "accelerator" in there else "cpu")
    keys = ("machine", "processor", "vector_instructions", "accelerator")
    same = all(here.get(key) == there.get(key) for key in keys)
    there_torch = manifest.get("packages", {}).get("torch")
    return same and bool(there_torch == torch.__version__.partition("+")[0])


def timing(plan: Plan, state: State) -> dict[str, float]:
    """The facts that differ between equal runs: seconds, bytes of memory, processes."""
    played = state.done - (state.began["round"] if state.began else 0)
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
    return {
        "wall_seconds": state.wall_seconds,
        "cpu_seconds": state.cpu_seconds,
        "rounds_per_second": played / state.wall_seconds if state.wall_seconds else 0.0,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit,
        "resumed": state.resumed,
        "workers": plan.workers,
    }
