"""Measures: classes that declare a name, words, unit and direction, and compute a value."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from fedrepro.support.errors import UserError, refusal

if TYPE_CHECKING:  # declaring a measure needs no arrays
    import numpy as np
    from numpy.typing import NDArray

Series = list[tuple[float, float]]  # (round, value in printed units)
Columns = Mapping[str, list[float]]
Per = Literal["client", "round", "run"]
# Where a client's model lies between the shared one (weight 0) and its own (1): at the method's own
# weight; at the weight of 0, .1 .. 1 with the best mean accuracy, the same for all clients; at that
# for the other half of the clients, so that no test sample chooses for itself; at the weight with
# the best accuracy on each client's own test samples; or as in SuPerFed's released code
# (discrepancies 23 and 24): accuracy at each client's own, all else the highest value over the
# weights that any client chose.
Mix = Literal["fixed", "best", "cross_fitted", "own", "released"]


class Record(Protocol):
    """The part of a finished run that measures read: :class:`fedrepro.run.results.RunRecord`."""

    @property
    def manifest(self) -> Mapping[str, Any]: ...

    @property
    def rounds(self) -> Columns: ...

    @property
    def clients(self) -> Columns: ...

    @property
    def mixtures(self) -> Columns: ...

    @property
    def quality(self) -> Mapping[str, Any]: ...


class Measure:
    """One quantity. A plug-in measure is such a class in a file of its name.

    Attributes:
        name: in YAML and in files; for a plug-in, the file's name.
        words: its name in captions.
        unit: of printed values, or "". With "%" or "points" files hold shares of 1.
        higher_is_better: whether higher is better.
        per: "client": one number per client and evaluated round (clients.parquet); "round": one
            per evaluated round (rounds.parquet); "run": one, from :meth:`of_run`, which needs no
            training.
        title, about: of its chart on a run's page, if they differ from its words.
        same_axes: whether the panels of a row share their axes.
        as_released: whether it is computed as in released code that no text describes.
        incomparable: why a printed number of this kind is not comparable with ours, or "".
        guide: for a client measure: the measure by which interpolations are chosen.

    Examples:
        The file confident.py in a folder of plug-in measures could have this:

        >>> import numpy as np
        >>> from fedrepro.measures.base import Measure
        >>> class Confident(Measure):
        ...     words, unit, per = "samples with a clear answer", "%", "client"
        ...     higher_is_better = True
        ...
        ...     def of_outputs(self, outputs, targets):
        ...         first, second = np.sort(outputs, axis=1)[:, :-3:-1].T
        ...         return (first - second > 1).mean()
        >>> Confident().checked(np.array([[5.0, 1.0, 2.0], [0.0, 0.5, 0.1]]), np.array([0, 1]))
        0.5
    """

    name: ClassVar[str]
    words: ClassVar[str]
    unit: ClassVar[str] = ""
    higher_is_better: ClassVar[bool]
    per: ClassVar[Per]
    title: ClassVar[str] = ""
    about: ClassVar[str] = ""
    same_axes: ClassVar[bool] = False
    as_released: ClassVar[bool] = False
    incomparable: ClassVar[str] = ""
    guide: ClassVar[str] = "accuracy"

    def of_outputs(self, outputs: "NDArray[np.float64]", targets: "NDArray[np.int64]") -> float:
        """Its value on some samples: a client's own test samples, or all test samples ("round").

        If this is not overridden, it is what methods report under its name (docs/measures.md).

        Args:
            outputs: of the model, before any softmax [n, outputs].
            targets: the correct answers [n].
        """
        raise NotImplementedError

    def checked(self, outputs: "NDArray[np.float64]", targets: "NDArray[np.int64]") -> float:
        """Call :meth:`of_outputs` and check its result.

        Raises:
            UserError: one line, if it raises, does not return a number, or changes what other
                measures get as well.
        """
        before = outputs.tobytes(), targets.tobytes()
        try:
            value = float(self.of_outputs(outputs, targets))
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise self._refusal("of_outputs", why) from error
        if (outputs.tobytes(), targets.tobytes()) != before:
            why = "changed its arguments in place: write to copies instead"
            raise self._refusal("of_outputs", why)
        return value

    def _refusal(self, hook: str, why: str) -> UserError:
        return refusal(f"measure {self.name}", f"{hook}: {why}", hook)

    def of_run(self, record: Record) -> float | None:
        """Its value for a finished run, a share if the unit is "%"; None if the run has none."""
        raise NotImplementedError

    @property
    def from_outputs(self) -> bool:
        """Whether it is computed from a model's outputs; otherwise methods report it."""
        return type(self).of_outputs is not Measure.of_outputs

    @property
    def validated(self) -> bool:
        """Whether it is also computed on validation samples, if clients have them."""
        return self.per == "client" and self.from_outputs

    @property
    def in_rounds(self) -> bool:
        """Whether rounds.parquet has it: a measure of rounds, or clients' scores as a mean."""
        return self.per == "round" or self.validated

    @property
    def column(self) -> str:
        """Its column in rounds.parquet."""
        return self.name

    @property
    def weighed_by(self) -> str:
        """Which of a client's sample counts weights it: training ones for what it reports."""
        return "test_samples" if self.from_outputs else "train_samples"

    @property
    def factor(self) -> float:
        """The factor from values in files to printed units."""
        return 100.0 if self.unit in ("%", "points") else 1.0

    @property
    def without(self) -> str:
        """A phrase for a finished run without a value, or ""."""
        return f"has no {self.words}"

    @property
    def quantity(self) -> "Quantity":
        """How a table reads it from a run, as it is."""
        said = self.words, self.unit, self.higher_is_better
        return Quantity(
            *said, self.series, self.without, incomparable=self.incomparable, remark=self.remark,
            of_a_run=self.per == "run", same_axes=self.same_axes,
        )  # fmt: skip

    def remark(self, record: Record) -> str:
        """What a page says of a run's value, if it is of a model that no client uses; or ""."""
        if not (self.column.startswith("test_") and record.manifest.get("shares_part_of_model")):
            return ""
        return "is of the shared model, in which clients' own parts have their initial values"

    def _of_run(self, record: Record) -> float | None:
        """Call :meth:`of_run` and check its result.

        Raises:
            UserError: one line, if it raises or returns anything else.
        """
        try:
            value = self.of_run(record)
            return None if value is None else float(value)
        except UserError:  # of a damaged file
            raise
        except Exception as error:
            raise self._refusal("of_run", f"{type(error).__name__}: {error}") from error

    def series(self, record: Record) -> Series:
        """A run's values in printed units: one per evaluated round, or the only one."""
        if self.per == "run":
            value, seal = self._of_run(record), record.manifest.get("seal")
            if value is not None and (type(self), seal) not in _REPEATED:
                if value != self._of_run(record) and not math.isnan(value):
                    why = (
                        "differs from one call to the next: draw from a generator with a fixed seed"
                    )
                    raise self._refusal("of_run", why)
                if seal:
                    _REPEATED.add((type(self), seal))
            number = float(record.manifest.get("rounds_done", 0))
            return [] if value is None else [(number, self.factor * value)]
        rounds, values = record.rounds.get("round", []), record.rounds.get(self.column, [])
        return [
            (number, self.factor * value) for number, value in zip(rounds, values, strict=False)
        ]


# The measures of finished runs, by their seals, that gave this process the same value twice.
_REPEATED = set[tuple[type[Measure], str]]()


@dataclass(frozen=True)
class Quantity:
    """How to read a table's number from a run, and what to call it.

    Attributes:
        words: its name in a caption.
        unit: of its printed values, or "".
        higher_is_better: whether higher is better.
        series: a run's (round, value in printed units) of every evaluated round.
        without: a phrase for a finished run without a value, or "".
        remark: what a page says beside a run's value, or "".
        together: one number for several runs, one per seed; None: the mean of their values.
        of_a_run: whether a run has one number, whatever rounds a table summarises.
        needs_clients: whether a round's value needs each client's, not only their mean. Landed
            results of scale compact have clients of the last round only.
        reaches: the test accuracy in percent up to which it needs rounds; 0 if any number will do.
        same_axes: whether the panels of a row share their axes.
        selection: what it selects on test samples, in words, or "".
        as_released: whether it is computed as in a released code.
        mixture: at which mixture of clients' two models it is read, in words; "" for the method's
            own.
        incomparable: why a printed number of this kind is not comparable with ours, or "".
    """

    words: str
    unit: str
    higher_is_better: bool
    series: Callable[[Record], Series]
    without: str = ""
    together: Callable[[Sequence[Record]], float] | None = None
    incomparable: str = ""
    remark: Callable[[Record], str] = lambda record: ""
    of_a_run: bool = False
    needs_clients: bool = False
    reaches: float = 0.0
    same_axes: bool = False
    selection: str = ""
    as_released: bool = False
    mixture: str = ""
