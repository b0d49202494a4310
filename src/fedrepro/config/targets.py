"""Targets: the pages of tables and figures at a scale, and the runs that they need."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fedrepro.config.figures import FigureSpec
from fedrepro.config.metrics import Metric
from fedrepro.config.searches import Candidate, Search, Searched
from fedrepro.config.tables import ColumnOfTable, ComputedSpec, RowOfTable, Summary, Table
from fedrepro.config.values import Scalar, Scale
from fedrepro.support.names import SettingName


@dataclass(frozen=True)
class RunKey:
    """The setting, method and seed that identify a run."""

    setting: str
    method: str
    seed: int

    @property
    def system(self) -> str:
        """The system whose experiment file has its setting."""
        return SettingName.parse(self.setting).system

    @classmethod
    def parse(cls, name: str) -> "RunKey":
        """The run with this :attr:`name`.

        Raises:
            ValueError: if it is no name of a run.
        """
        system, setting, method, seed = name.split("/")
        return cls(f"{system}/{setting}", method, int(seed.removeprefix("seed")))

    @classmethod
    def of_wildcards(cls, wildcards: Any) -> "RunKey":
        """The run that the wildcards of a rule name."""
        return cls(wildcards.setting, wildcards.method, int(wildcards.seed))

    @property
    def name(self) -> str:
        """Its folder below ``results/runs``."""
        return f"{self.setting}/{self.method}/seed{self.seed}"

    @property
    def words(self) -> str:
        """Its name in messages."""
        return f"{self.setting} {self.method} seed {self.seed}"

    @property
    def folder(self) -> Path:
        return Path("results/runs") / self.name

    @property
    def manifest(self) -> Path:
        return self.folder / "manifest.json"

    @property
    def command(self) -> str:
        """The command that makes it."""
        return f"fedrepro run {self.setting} {self.method} --seed {self.seed}"

    def analysis(self, kind: str, part: str = "") -> Path:
        """The file of an analysis such as ``landscapes``.

        Args:
            part: which of several analyses of the kind.
        """
        folder = Path("results") / kind / self.setting / self.method
        return folder / (f"seed{self.seed}/{part}.json" if part else f"seed{self.seed}.json")


def joint_analysis(kind: str, setting: str, method: str, seeds: Sequence[int], part: str) -> Path:
    """The file of an analysis of runs that differ only in their seed."""
    named = "-".join(map(str, seeds))
    return Path("results") / kind / setting / method / f"seeds{named}_{part}.json"


def study_path(name: str) -> Path:
    """The file of a study."""
    return Path("results/studies") / f"{name}.json"


@dataclass(frozen=True)
class Cell:
    """One cell of a table: a setting, methods (the best one is shown) and seeds.

    Attributes:
        metric, summary: the number that it takes from a run, and from which rounds.
        rivals: the methods without the row's wrapper, if the cell is a speed-up over them.
    """

    row: RowOfTable
    column: ColumnOfTable
    setting: str
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    metric: Metric
    summary: Summary
    rivals: tuple[str, ...] = ()

    def runs(self, method: str) -> tuple[RunKey, ...]:
        """One run per seed of one of the cell's methods."""
        return tuple(RunKey(self.setting, method, seed) for seed in self.seeds)


@dataclass(frozen=True)
class Target:
    """A target of the workflow: something with its own page at a scale.

    Attributes:
        awaited: whether its page waits for its runs. At scale compact only compact tables do, and
            these at no other scale. Existing runs are shown in any case.
    """

    system: str
    item: str
    scale: Scale
    awaited: bool = field(default=True, kw_only=True)

    @property
    def page(self) -> Path:
        return Path("reports/site") / self.system / f"{self.item}.html"

    @property
    def runs(self) -> tuple[RunKey, ...]:
        """Every run that the page shows, each once."""
        return ()

    @property
    def required(self) -> tuple[RunKey, ...]:
        """The runs that the page waits for."""
        return self.runs if self.awaited else ()

    @property
    def study(self) -> Path | None:
        """The file of the study that the page needs, if any."""
        return None

    @property
    def analyses(self) -> tuple[Path, ...]:
        """The files of the analyses of its runs that the page needs."""
        return ()


@dataclass(frozen=True)
class ComputedTarget(Target):
    """A table that needs no runs."""

    spec: ComputedSpec

    @property
    def study(self) -> Path | None:
        return study_path(self.spec.study) if self.spec.study else None


@dataclass(frozen=True)
class FigureTarget(Target):
    """A figure at a scale."""

    figure: FigureSpec
    seeds: tuple[int, ...]

    def runs_in(self, setting: str, method: str) -> list[RunKey]:
        """One run per seed that it shows, of a method in one of the system's settings."""
        seeds = self.seeds[:1] if self.figure.first_seed_only else self.seeds
        return [RunKey(f"{self.system}/{setting}", method, seed) for seed in seeds]

    def analyses_in(self, setting: str, method: str, part: str = "") -> list[Path]:
        """The files of the analyses of these runs, for a kind that draws them."""
        kind = str(self.figure.analysis)
        if self.figure.joins_seeds:
            return [joint_analysis(kind, f"{self.system}/{setting}", method, self.seeds, part)]
        return [run.analysis(kind, part) for run in self.runs_in(setting, method)]

    @cached_property
    def runs(self) -> tuple[RunKey, ...]:
        needs = dict.fromkeys(self.figure.needs(self.scale))
        return tuple(run for need in needs for run in self.runs_in(*need))

    @property
    def analyses(self) -> tuple[Path, ...]:
        parts = dict.fromkeys(self.figure.parts(self.scale)) if self.figure.analysis else ()
        return tuple(path for part in parts for path in self.analyses_in(*part))

    @property
    def study(self) -> Path | None:
        return study_path(self.figure.study) if self.figure.study else None


@dataclass(frozen=True)
class TableTarget(Target):
    """A table at a scale."""

    table: Table
    seeds: tuple[int, ...]
    cells: tuple[Cell, ...]  # row by row

    @property
    def path(self) -> Path:
        return Path("results/tables") / self.scale / self.system / f"{self.item}.json"

    @cached_property
    def runs(self) -> tuple[RunKey, ...]:
        runs = (
            run
            for cell in self.cells
            for name in (*cell.methods, *cell.rivals)
            for run in cell.runs(name)
        )
        return tuple(dict.fromkeys(runs))

    @property
    def analyses(self) -> tuple[Path, ...]:
        judged = (
            run.analysis("quality")
            for cell in self.cells
            if cell.metric.analysis
            for name in cell.methods
            for run in cell.runs(name)
        )
        return tuple(dict.fromkeys(judged))


@dataclass(frozen=True)
class Trial:
    """A method of a search.

    Attributes:
        candidates: the grid's, and the published one if the grid does not contain it.
        published: the paper's choice, one of the candidates.
    """

    searched: Searched
    candidates: tuple[Candidate, ...]
    published: Candidate

    @classmethod
    def of(cls, searched: Searched, published: Mapping[str, Scalar]) -> "Trial":
        """The trial of a method, with the paper's choice."""
        candidates = tuple(searched.candidates(published))
        return cls(
            searched, candidates, next(trial for trial in candidates if trial.values == published)
        )


@dataclass(frozen=True)
class SearchTarget(Target):
    """A search at a scale.

    Attributes:
        setting: in which clients keep validation samples.
    """

    search: Search
    setting: str
    seeds: tuple[int, ...]
    trials: tuple[Trial, ...]

    @cached_property
    def runs(self) -> tuple[RunKey, ...]:
        return tuple(
            run
            for trial in self.trials
            for candidate in trial.candidates
            for run in self.runs_of(candidate)
        )

    def runs_of(self, candidate: Candidate) -> tuple[RunKey, ...]:
        """One run per seed."""
        setting = self.setting + candidate.suffix
        return tuple(RunKey(setting, candidate.method, seed) for seed in self.seeds)

    @property
    def analyses(self) -> tuple[Path, ...]:
        """The files of the evaluations of synthetic sets, for a metric that reads them."""
        kind = self.search.metric.analysis
        return tuple(run.analysis(kind) for run in self.runs) if kind else ()
