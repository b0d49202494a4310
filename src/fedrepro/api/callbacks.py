"""Callbacks of :func:`fedrepro.train`: what is called while a run is under way."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.progress import Progress as Bar

from fedrepro.api.runs import place_of
from fedrepro.run.tracking import Tracker, tracker_of
from fedrepro.support.errors import bad_value
from fedrepro.support.plugins import refuse_uncalled

if TYPE_CHECKING:
    from fedrepro.api.runs import Run
    from fedrepro.config.run_spec import RunSpec
    from fedrepro.run.runner import Progress


class Callback:
    """Three hooks that watch a run; a class of yours overrides those that it needs.

    They see rounds as they are played: none of a finished run that is reused, and those after the
    last checkpoint of an interrupted one. They change no number: what ends a run early is part of
    its description (:class:`EarlyStopping`).
    """

    def on_round(self, progress: "Progress") -> None:
        """Called after each round with ``round``, ``rounds``, ``seconds_left`` and ``scores``."""

    def on_evaluation(self, round: int, scores: Mapping[str, float]) -> None:
        """Called after each evaluated round with its row of ``rounds``, by column."""

    def on_end(self, run: "Run") -> None:
        """Called with the finished run."""

    def _begin(self, spec: "RunSpec") -> None:
        """Called before the first round."""

    def _abandon(self) -> None:
        """Called in place of what is left if the run is interrupted or fails."""


class EarlyStopping(Callback):
    """End a run at a score, or when it has not improved; the setting's key ``stop``.

    Args:
        measure: such as "accuracy", "loss" or "mae", on test samples; if clients hold validation
            samples out, "accuracy" or "loss" on those. Default: "accuracy", or "loss" with the task
            "regression".
        at: the score at which it ends, as tables show it: 97 is 97 %.
        patience: it ends after so many evaluations without one better than all before.
    """

    def __init__(
        self, measure: str | None = None, at: float | None = None, patience: int | None = None
    ) -> None:
        self.stop = {"at": at, "patience": patience, **({"measure": measure} if measure else {})}


class ProgressBar(Callback):
    """A bar on the terminal or in the notebook, with the last score."""

    def __init__(self) -> None:
        self._bar: Any = None

    def on_round(self, progress: "Progress") -> None:
        if self._bar is None:
            self._bar = Bar(transient=True)
            self._bar.start()
            self._task = self._bar.add_task("", total=progress.rounds)
        score = next((name for name in SHOWN if name in progress.scores), None)
        said = f"{score.replace('_', ' ')} {progress.scores[score]:.4g}" if score else None
        self._bar.update(self._task, completed=progress.round, description=said)

    def on_end(self, run: "Run") -> None:
        self._abandon()

    def _abandon(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None  # for a further run


SHOWN = ("client_accuracy", "test_accuracy", "test_loss")


class _Tracking(Callback):
    """Reports to a tool, in the folder results of ``root``."""

    _tool: Literal["tensorboard", "mlflow"]
    _tracker: Tracker | None = None

    def __init__(self, root: str | Path = ".") -> None:
        where, expected = "fedrepro.callbacks", "the path of a folder"
        self._root = place_of(root, where, "root", expected, named=False)

    def _begin(self, spec: "RunSpec") -> None:
        self._tracker = tracker_of(self._tool, self._root, spec)

    def on_evaluation(self, round: int, scores: Mapping[str, float]) -> None:
        if self._tracker:
            self._tracker.log(round, scores)

    def on_end(self, run: "Run") -> None:
        self._close(run.finished)

    def _abandon(self) -> None:
        self._close(finished=False)

    def _close(self, finished: bool) -> None:
        if self._tracker:
            self._tracker.close(finished)
            self._tracker = None


class TensorBoard(_Tracking):
    """Log evaluated rounds to TensorBoard, in ``root``/results/tensorboard."""

    _tool = "tensorboard"


class MLflow(_Tracking):
    """Log evaluated rounds to MLflow's file store ``root``/results/mlflow."""

    _tool = "mlflow"


class Several(Callback):
    """Callbacks that are called one after another."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._each = callbacks
        for callback in callbacks:
            if not isinstance(callback, Callback):
                wanted = "objects of classes that extend fedrepro.callbacks.Callback"
                raise bad_value("fedrepro.train", "callbacks", callback, wanted)
            refuse_uncalled(type(callback), Callback, "on_", "on_")

    @contextmanager
    def watching(self, spec: "RunSpec") -> Iterator[None]:
        """Callbacks are told of a run's beginning, and of an end without a result."""
        try:
            for callback in self._each:
                callback._begin(spec)
            yield
        except BaseException:
            for callback in self._each:
                callback._abandon()
            raise

    def on_round(self, progress: "Progress") -> None:
        for callback in self._each:  # each may change what it gets
            callback.on_round(replace(progress, scores=dict(progress.scores)))
            if progress.scores:
                callback.on_evaluation(progress.round, dict(progress.scores))

    def on_end(self, run: "Run") -> None:
        errors: list[BaseException] = []
        for callback in self._each:
            try:
                callback.on_end(run)
            except BaseException as error:  # the others see the run, too, which is finished
                errors.append(error)
        if errors:
            raise errors[0]
