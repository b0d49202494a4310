"""What a measure is: a class with its words, unit and direction, and how it is got."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from fedrepro.support.errors import UserError

if TYPE_CHECKING:  # what describes a measure needs no arrays
    import numpy as np
    from numpy.typing import NDArray

Series = list[tuple[float, float]]  # (round, value in printed units)
Columns = Mapping[str, list[float]]
Per = Literal["client", "round", "run"]
# Where a client's model lies between the shared one (weight 0) and its own (1): at the method's own
# weight; at the one of 0, .1 .. 1 whose accuracy is best on average, the same for all clients; or
# as SuPerFed's code has it (discrepancies 23 and 24): every client's accuracy at the weight that is
# best on its own test samples, all else the greatest value over the weights that any client chose.
Mix = Literal["fixed", "best", "released"]


class Record(Protocol):
    """A finished run, as far as measures read it: :class:`fedrepro.run.results.RunRecord`."""

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
    """One quantity. A measure of one's own is a class of this kind in a file of its name.

    Attributes:
        name: in YAML and in files; of one's own the file's.
        words: its name in captions.
        unit: of printed values, or "". With "%" or "points" files hold shares of 1.
        rising: whether more is better.
        per: "client": a number of each client after each evaluated round (clients.parquet);
            "round": one after each evaluated round (rounds.parquet); "run": one, by
            :meth:`of_run`, which takes no training.
        title, about: of its chart on a run's page, where they are not its words.
        same_axes: whether the panels of a row share their axes.
        as_released: whether it is as a released code measures and no text does.
        incomparable: why a printed number of this kind can't be compared with ours, or "".
        guide: of a client's measure, the one by which mixtures of two models are chosen.
    """

    name: ClassVar[str]
    words: ClassVar[str]
    unit: ClassVar[str] = ""
    rising: ClassVar[bool]
    per: ClassVar[Per]
    title: ClassVar[str] = ""
    about: ClassVar[str] = ""
    same_axes: ClassVar[bool] = False
    as_released: ClassVar[bool] = False
    incomparable: ClassVar[str] = ""
    guide: ClassVar[str] = "accuracy"

    def of_outputs(self, outputs: "NDArray[np.float64]", targets: "NDArray[np.int64]") -> float:
        """Its value on some samples: a client's own test samples, or all test samples ("round").

        Without this, it is what methods report under its name (docs/measures.md).

        Args:
            outputs: of the model, before any softmax [n, outputs].
            targets: what is right [n].
        """
        raise NotImplementedError

    def checked(self, outputs: "NDArray[np.float64]", targets: "NDArray[np.int64]") -> float:
        """:meth:`of_outputs`, or one line that says what is wrong with it.

        Raises:
            UserError: for what it raises, and for what is no number.
        """
        try:
            return float(self.of_outputs(outputs, targets))
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise UserError(f"measure {self.name}: of_outputs: {why}") from error

    def of_run(self, record: Record) -> float | None:
        """Its value of a finished run, a share with "%"; None where the run has none."""
        raise NotImplementedError

    @property
    def from_outputs(self) -> bool:
        """Whether it is computed from a model's outputs; else methods report it."""
        return type(self).of_outputs is not Measure.of_outputs

    @property
    def validated(self) -> bool:
        """Whether it is measured on validation samples, too, where clients keep such."""
        return self.per == "client" and self.from_outputs

    @property
    def column(self) -> str:
        """Where a round's value stands in rounds.parquet."""
        return self.name

    @property
    def weighed_by(self) -> str:
        """By which samples of theirs clients count: what a client trains with is of those."""
        return "test_samples" if self.from_outputs else "train_samples"

    @property
    def factor(self) -> float:
        """From what files hold to printed units."""
        return 100.0 if self.unit in ("%", "points") else 1.0

    @property
    def without(self) -> str:
        """What to say of a finished run that has no value, or ""."""
        return f"has no {self.words}"

    def series(self, record: Record) -> Series:
        """A run's values in printed units: of every evaluated round, or the only one."""
        if self.per == "run":
            value = self.of_run(record)
            number = float(record.manifest.get("rounds_done", 0))
            return [] if value is None else [(number, self.factor * value)]
        rounds, values = record.rounds.get("round", []), record.rounds.get(self.column, [])
        return [
            (number, self.factor * value) for number, value in zip(rounds, values, strict=False)
        ]


@dataclass(frozen=True)
class Reading:
    """What a table's metric stands for: a measure and how it is read off a run.

    Attributes:
        words: its name in a caption.
        unit: of its printed values, or "".
        rising: whether more is better.
        series: a run's (round, value in printed units) of every evaluated round.
        without: what to say of a finished run that has no value, or "".
        together: the number of several runs, one a seed; None: the mean of their values.
        incomparable: why a printed number of this kind can't be compared with ours, or "".
    """

    words: str
    unit: str
    rising: bool
    series: Callable[[Record], Series]
    without: str = ""
    together: Callable[[Sequence[Record]], float] | None = None
    incomparable: str = ""
