"""Report a run to TensorBoard or MLflow while it is under way.

``track`` in config.yaml selects the tool; it is not part of the run's description. Both write to
``results``: view it with `tensorboard --logdir results/tensorboard`, or `mlflow ui` on
results/mlflow.
"""

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from fedrepro.config.run_spec import RunSpec
from fedrepro.support.errors import refusal, text_of
from fedrepro.support.packaged import CONFIG
from fedrepro.support.terminal import say

Tool = Literal["tensorboard", "mlflow"]
PROGRAMS = "own/arrays"  # the setting of all runs of `fedrepro.train`
TENSORBOARD, MLFLOW = Path("results/tensorboard"), Path("results/mlflow")


class Tracker(Protocol):
    """A tool that a run reports to."""

    def log(self, round: int, scores: Mapping[str, float]) -> None:
        """Log the numbers of an evaluated round; those that are not finite are skipped."""

    def close(self, finished: bool) -> None:
        """Write what is left; a run that is not finished may be resumed."""


def tracker_of(tool: Tool, root: Path, spec: RunSpec) -> Tracker:
    """The tracker of a run.

    Raises:
        UserError: if the tool's package is not installed.
    """
    by_program = spec.setting.name == PROGRAMS
    kind = _TensorBoard if tool == "tensorboard" else _MLflow
    try:
        return _Forgiven(tool, lambda: kind(root, spec))
    except ImportError as error:
        where, key = ("fedrepro.train", "callbacks") if by_program else (CONFIG, "track")
        install = tool if by_program else f"'.[{tool}]' in the clone"
        why = f"{key}: {tool!r}: the package is not installed: pip install {install} ({error})"
        raise refusal(where, why, key, tool, code="missing") from None


def finite(scores: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in scores.items() if math.isfinite(value)}


class _Forgiven:
    """A tracker that is given up, with one line, when it fails: the run goes on without it.

    Also while it is made: versions of the tool and of its packages may not fit each other.

    Raises:
        ImportError: if the tool is not installed.
    """

    def __init__(self, tool: Tool, make: Callable[[], Tracker]) -> None:
        self._tool, self._failed = tool, False

        def begin() -> None:
            self._tracker = make()

        self._try(begin, but=ImportError)

    def log(self, round: int, scores: Mapping[str, float]) -> None:
        self._try(lambda: self._tracker.log(round, scores))

    def close(self, finished: bool) -> None:
        self._try(lambda: self._tracker.close(finished))

    def _try(self, call: Callable[[], None], but: type[Exception] | tuple[()] = ()) -> None:
        if self._failed:
            return
        try:
            call()
        except but:
            raise
        except Exception as error:  # of the tool's own kinds, too
            self._failed = True
            say(f"fedrepro: track: {self._tool!r}: not logged any more: {text_of(error)}")


class _TensorBoard:
    """Event files in results/tensorboard/SETTING/METHOD/seedSEED."""

    def __init__(self, root: Path, spec: RunSpec) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # All runs of `fedrepro.train` have that setting.
        other = f"-{spec.digest[:8]}" if spec.setting.name == PROGRAMS else ""
        seed = f"seed{spec.seed}{other}"
        folder = root / TENSORBOARD / spec.setting.name / spec.method / seed
        self._make: Any = lambda first: SummaryWriter(folder, purge_step=first)
        self._writer: Any = None
        self._about = json.dumps(spec.description(), indent=2)

    def log(self, round: int, scores: Mapping[str, float]) -> None:
        if self._writer is None:
            # Hides what an interrupted call logged of later rounds, which are now replayed.
            self._writer = self._make(round)
            self._writer.add_text("configuration", f"```json\n{self._about}\n```", round)
        for name, value in finite(scores).items():
            self._writer.add_scalar(name, value, round)

    def close(self, finished: bool) -> None:
        if self._writer is not None:
            self._writer.close()


class _MLflow:
    """A run in the file store results/mlflow; its experiment is the setting."""

    def __init__(self, root: Path, spec: RunSpec) -> None:
        # MLflow warns about file stores; a results folder consists of files on purpose.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow import MlflowClient

        store = (root / MLFLOW).absolute()
        store.mkdir(parents=True, exist_ok=True)
        self._client = MlflowClient(tracking_uri=store.as_uri())
        self._spec = spec
        self._run = ""

    def log(self, round: int, scores: Mapping[str, float]) -> None:
        self._run = self._run or self._begin()
        for name, value in finite(scores).items():
            self._client.log_metric(self._run, name, value, step=round)

    def close(self, finished: bool) -> None:
        if self._run:
            self._client.set_terminated(self._run, "FINISHED" if finished else "KILLED")

    def _begin(self) -> str:
        """The interrupted run of the same configuration, or a new one."""
        client, spec = self._client, self._spec
        name = spec.setting.name
        known = client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else client.create_experiment(name)
        same = f"tags.digest = '{spec.digest}' and attributes.status = 'KILLED'"
        for earlier in client.search_runs([experiment], same, max_results=1):
            client.update_run(earlier.info.run_id, "RUNNING")
            return str(earlier.info.run_id)
        tags = {"digest": spec.digest, "method": spec.method, "seed": str(spec.seed)}
        made = client.create_run(experiment, run_name=f"{spec.method} seed {spec.seed}", tags=tags)
        for key, value in spec.description().items():
            client.log_param(made.info.run_id, key, json.dumps(value))
        return str(made.info.run_id)
