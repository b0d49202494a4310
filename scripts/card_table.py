"""A GPU's numbers, from which rates are predicted: ``h100.yaml``, next to this module."""

import hashlib
from functools import cache
from pathlib import Path

from pydantic import Field

from fedrepro.cost.rates import Precision, Workload
from fedrepro.support.typed_yaml import Typed, read_yaml, validate

FILE = Path(__file__).parent / "h100.yaml"


class MeasuredModel(Typed):
    """A model's local steps with FedAvg, in whole rounds.

    Attributes:
        shape: of one sample.
        stacked: clients that are computed side by side; 0: one after another.
        client_steps: steps of a client in a round.
        steps_per_second: of all clients together.
        source: where and when it was measured.
    """

    model: str
    shape: tuple[int, ...]
    batch_size: int
    stacked: int = 0
    precision: Precision = "float32"
    client_steps: int
    steps_per_second: float = Field(gt=0)
    source: str


class MeasuredMethod(Typed):
    """A method's time for local training.

    Attributes:
        method: a composition without options.
        epochs: of local training.
        factor: its seconds divided by FedAvg's, with the same model and executor.
    """

    method: str
    epochs: int
    factor: float = Field(gt=0)
    source: str


class CardTable(Typed):
    """A GPU's numbers, of which all that is not measured is predicted.

    Attributes:
        name: as nvidia-smi has it.
        launch_seconds: of the host, for one operation that Python launches.
        replay_seconds: of the host, for one recorded graph.
        kernel_seconds: of the shortest kernel in a graph.
        product_seconds, convolution_seconds: of the smallest product and convolution, beside the
            time that its FLOP or bytes take; a convolution's gradient is two.
        left_by_compiler: share of kernels without products that compiling leaves of stacked steps.
        bytes_per_second: of the card's memory, sustained.
        flop_per_second: sustained, by precision.
        start_seconds: from a command to its first round.
        process_bytes: of main memory for a run without its data.
        sources: of each of these numbers.
    """

    name: str
    launch_seconds: float = Field(gt=0)
    replay_seconds: float = Field(gt=0)
    kernel_seconds: float = Field(gt=0)
    product_seconds: float = Field(gt=0)
    convolution_seconds: float = Field(gt=0)
    left_by_compiler: float
    bytes_per_second: float = Field(gt=0)
    flop_per_second: dict[Precision, float]
    start_seconds: float
    process_bytes: int
    sources: dict[str, str]
    models: tuple[MeasuredModel, ...] = ()
    methods: tuple[MeasuredMethod, ...] = ()

    @property
    def digest(self) -> str:
        """Of the numbers from which others are predicted."""
        content = self.model_dump_json(exclude={"sources", "models", "methods"})
        return hashlib.sha256(content.encode()).hexdigest()[:12]

    def row_of(self, workload: Workload) -> MeasuredModel | None:
        """The row that measured a workload, if one did; the number of classes does not matter."""
        named = workload.model, workload.shape, workload.batch_size
        way = workload.stacked, workload.precision
        if workload.method:
            return None
        return next(
            (
                row
                for row in self.models
                if (row.model, row.shape, row.batch_size) == named
                and (row.stacked, row.precision) == way
            ),
            None,
        )


@cache
def shipped() -> CardTable:
    """The table that comes with the package."""
    return validate(CardTable, read_yaml(FILE), FILE.name)
