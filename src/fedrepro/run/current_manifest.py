"""The manifest that a run would have if it were started now."""

import json
from typing import Any

from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.data.dataset import PREPARED, open_dataset
from fedrepro.data.partition.partition import Partition
from fedrepro.provenance import fingerprint, numerics
from fedrepro.run import input_artifacts, manifest
from fedrepro.run.assembly import compose, make_plan
from fedrepro.support.errors import UserError


def current_manifest(workbench: Workbench, run: RunKey) -> tuple[dict[str, Any], str]:
    """The part of a run's manifest that is known before its first round; creates nothing.

    Returns:
        The keys with their values, and in words why ``data`` and ``executor`` are missing if they
        are: usually because the data are not prepared.

    Raises:
        UserError: for an unknown setting, method or seed.
    """
    spec = workbench.spec_of(run)
    compose(spec)  # raises for an unknown method
    code, ids = fingerprint.of_code(spec), numerics.of_run(spec)
    known = manifest.of_spec(spec, code, ids) | manifest.origin(spec)
    why = ""
    try:
        dataset = open_dataset(spec.setting.dataset, workbench.root / PREPARED)
        partition = Partition.load(workbench.root / spec.setting.partition_path(run.seed))
        loaded = input_artifacts.load(workbench.root, spec, dataset, partition)
        plan = make_plan(spec, dataset, partition, loaded)
        known |= manifest.identity_keys(plan, code, ids)
        known["data"] = input_artifacts.data_of_plan(plan, dataset, partition, loaded)
    except UserError as error:
        why = str(error)
    as_read: dict[str, Any] = json.loads(json.dumps(known))
    return as_read, why
