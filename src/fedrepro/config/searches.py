"""Hyperparameter searches of experiment files: a grid, evaluated on validation samples.

Every candidate is an ordinary method variant in a reading of the setting, ``<name>@validation0.2``,
in which clients keep a share of their training samples for validation.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from typing import Annotated, Self, TypeGuard

from pydantic import Field, field_validator, model_validator

from fedrepro.config.config_file import Seeds
from fedrepro.config.metrics import OfMeasure, SearchedScore, SearchMetric
from fedrepro.config.tables import Summary
from fedrepro.config.values import Hyperparameters, LocalSetting, MethodName, Scalar, Scale
from fedrepro.support.names import Composition
from fedrepro.support.old_names import FIRST_NAMES
from fedrepro.support.typed_yaml import Real, Typed, expected, later, read_value

MOST = 1000  # candidates of a method
LONGEST = 120  # characters of a candidate's name, which is also a folder's name
LEAGUE_SHARE = 0.2  # of its training samples that a client validates on in the league's searches
KEPT = "-"  # in texts of settings' names, which methods' names do not have
BEYOND = 3  # half-decades that a search may go on at either end of a grid

Values = Annotated[
    list[Annotated[Scalar, expected("a number, a word, true, false or null")]], Field(min_length=1)
]


@dataclass(frozen=True)
class Candidate:
    """A point of a grid.

    Attributes:
        values: hyperparameters by the grid's keys.
        method: the method's name in its runs' paths. It depends only on the values, so that
            changing the grid does not repeat runs.
        suffix: what follows the name of its reading of the setting; "" without `keys`.
    """

    values: Mapping[str, Scalar]
    method: str
    suffix: str = ""


class Searched(Typed):
    """A method of a search, and the values to try.

    Attributes:
        method: a method, or a composition.
        label: Default: the method's name.
        grid: values by hyperparameter; for a composition, by <part>.<hyperparameter>. All
            combinations are tried. A key of the setting is one of `keys`.
        keys: values by key of the setting, such as optimizer.lr, or lr for short. Numbers go on by
            half-decades while the best is at an end, and of all within one standard error of the
            best the smallest is selected.
        published: the paper's choice, if neither `methods`, the method's defaults nor the setting
            have it.
        paper_grid: `keys` has the paper's own grid, of which it takes the best: no value is added,
            and the best is selected.
    """

    method: MethodName
    label: str | None = None
    grid: Annotated[dict[str, Values], Field(min_length=1)] = later({})
    keys: Annotated[dict[str, Values], Field(min_length=1)] = later({})
    published: Hyperparameters = Field(default={})
    paper_grid: bool = False

    @field_validator("grid", "keys")
    @classmethod
    def _distinct(cls, grid: dict[str, list[Scalar]]) -> dict[str, list[Scalar]]:
        for name, values in grid.items():
            if any(value in values[:place] for place, value in enumerate(values)):
                raise ValueError(f"distinct values of {name}")
        if math.prod(map(len, grid.values())) > MOST:
            raise ValueError(f"a grid of at most {MOST:,} candidates")
        return grid

    @model_validator(mode="after")
    def _something_to_try(self) -> Self:
        if not self.all_values:
            raise ValueError("`grid`, `keys` or both")
        if self.paper_grid and not self.keys:
            raise ValueError("`keys` with `paper_grid`: of a method's own grid the best is taken")
        if both := self.grid.keys() & self.keys.keys():
            raise ValueError(f"{min(both)} in `grid` or in `keys`, not in both")
        return self

    @property
    def all_values(self) -> dict[str, list[Scalar]]:
        """The values to try by key of the setting, then by hyperparameter."""
        return {**self.keys, **self.grid}

    @property
    def closed_grids(self) -> dict[str, list[Scalar]]:
        """The values to try by key, where no value is added."""
        return self.all_values if self.paper_grid else dict(self.grid)

    @property
    def parts(self) -> list[str]:
        """The names in its composition, as in `methods` of the experiment file."""
        return list(Composition.parse(self.method).names)

    def place_of(self, key: str) -> tuple[str, str]:
        """The part and the hyperparameter of a key of the grid."""
        part, _, name = key.rpartition(".")
        return part or self.parts[0], name

    def candidate(self, values: Mapping[str, Scalar]) -> Candidate:
        """The candidate with these values."""
        parts = Composition.parse(self.method).parts
        method = Composition.of(part.named(self._variant(part.name, values)) for part in parts)
        keys = sorted((FIRST_NAMES.get(key, key), key) for key in self.keys)
        words = (f"_{name}{_written(values[key], KEPT)}" for name, key in keys)
        return Candidate(values, str(method), "".join(words))

    def _variant(self, part: str, values: Mapping[str, Scalar]) -> str:
        places = sorted(
            (self.place_of(key), value) for key, value in values.items() if key not in self.keys
        )
        words = (f"{name}{_written(value)}" for (whose, name), value in places if whose == part)
        return "_".join((part, *words))

    def candidates(self, published: Mapping[str, Scalar] | None) -> list[Candidate]:
        """The grid's, the first key varying slowest; then the published one if not in the grid."""
        values = self.all_values
        grid = [dict(zip(values, row, strict=True)) for row in product(*values.values())]
        if published is not None and published not in grid:
            grid.append(dict(published))
        return [self.candidate(values) for values in grid]

    def variants(self, candidate: Candidate) -> dict[str, Hyperparameters]:
        """The candidate's parts with searched values, in the form of a setting's ``methods``."""
        variants: dict[str, Hyperparameters] = {}
        for key, value in candidate.values.items():
            if key in self.keys:
                continue
            part, name = self.place_of(key)
            # A candidate must not share a prefix with the parent run of the unchanged method.
            variant = variants.setdefault(
                self._variant(part, candidate.values), {"variant_of": part, "parent": None}
            )
            variant[name] = value
        return variants

    def gone_on(self, key: str, best: Scalar) -> "Searched":
        """The search with a further value of a key, if the best one is an end of what was tried."""
        tried = [value for value in self.keys[key] if is_number(value)]
        if self.paper_grid or len(tried) < len(self.keys[key]) or not is_number(best):
            return self
        up = best == max(tried)
        if not up and best != min(tried):
            return self
        further = half_decade(best, up=up)
        if further is None:
            return self
        return self.model_copy(update={"keys": {**self.keys, key: sorted((*tried, further))}})

    def as_far_as_it_may_go(self) -> "Searched":
        """The search with all values that it may get to."""
        longer = self
        for key, values in self.keys.items():
            for end in (min, max) if all(map(is_number, values)) else ():
                for _ in range(BEYOND):
                    longer = longer.gone_on(key, end(longer.keys[key]))  # type: ignore[type-var]
        return longer


def is_number(value: Scalar) -> TypeGuard[int | float]:
    """Whether a value has a size."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def half_decade(value: float, *, up: bool) -> float | None:
    """The next of ..., 0.1, 0.3, 1, 3, 10, ... above or below; None if there is no such number.

    Whole numbers stay whole.
    """
    if value <= 0:
        return None
    exact = Decimal(repr(value))
    steps = [Decimal(step).scaleb(exact.adjusted()) for step in ("0.3", "1", "3", "10")]
    further = (
        min(step for step in steps if step > exact)
        if up
        else max(step for step in steps if step < exact)
    )
    if isinstance(value, int):
        return int(further) if further == int(further) else None
    return float(further)


def _written(value: Scalar, kept: str = "") -> str:
    """A value as a part of a method's name.

    Args:
        kept: further characters of a text that stay, as in a setting's name.
    """
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, str):
        return re.sub(rf"[^A-Za-z0-9_.{kept}]", "_", value)
    exact = Decimal(value) if isinstance(value, int) else Decimal(repr(value))
    if exact.is_finite() and abs(exact.adjusted()) > LONGEST:
        return "_" * LONGEST  # the name is too long, whatever the digits
    return format(exact, "f").replace("-", "minus")


# As :func:`_written` writes them. A text with other characters cannot be told from what follows it.
_NUMBER = r"(?:minus)?\d+(?:\.\d+)?|true|false|null"
_WORD = r"[A-Za-z][A-Za-z0-9.]*"
TEXT = r"[A-Za-z][A-Za-z0-9_.-]*?"  # of a setting's key


def values_in(name: str, defaults: Mapping[str, object], word: str = _WORD) -> Hyperparameters:
    """The values that a candidate's name has after its part's, such as ``_mu0.1``.

    Args:
        defaults: the part's hyperparameters; one whose default is a text has a word as its value,
            and with :data:`TEXT` one without default.
        word: a pattern.

    Returns: none if it is no such name, or has other hyperparameters than those known.
    """
    names = "|".join(map(re.escape, sorted(defaults, key=len, reverse=True)))
    one = rf"_({names})({_NUMBER}|{word})(?=_(?:{names})|$)"
    if not names or not re.fullmatch(f"(?:{one})+", name):
        return {}
    values: Hyperparameters = {}
    for key, text in re.findall(one, name):
        if isinstance(defaults[key], str):
            values[key] = text
        elif re.fullmatch(_NUMBER, text):
            values[key] = read_value(text.replace("minus", "-"), name, key)
        elif word == TEXT and defaults[key] is None:
            values[key] = text
    kept = KEPT if word == TEXT else ""
    written = "".join(f"_{key}{_written(values[key], kept)}" for key in sorted(values))
    return values if written == name else {}  # each once, in this order, and 010 is no number


def validated_name(setting: str, share: float) -> str:
    """The name of a setting in which clients keep a share of their samples for validation."""
    return f"{setting}@validation{share}"


class Search(Typed):
    """Hyperparameters chosen on validation samples, compared with the published choice.

    Attributes:
        title: its heading.
        setting: a setting's name.
        demo: replaces it at scale demo.
        seeds: replace the experiment's.
        validation: the share of its training samples that each client validates on.
        metric: what is maximised (a loss: minimised) on validation samples.
        summary: which rounds are averaged.
        methods: the methods, each with its grid.
        selects_for: further settings that have what it selects.
    """

    title: str
    setting: LocalSetting
    demo: LocalSetting | None = None
    seeds: Seeds | None = None
    validation: Annotated[Real, Field(gt=0, lt=1), expected("a number above 0 and below 1")]
    metric: SearchMetric = SearchedScore(name="accuracy")
    summary: Summary = later(Summary())
    methods: list[Searched] = Field(min_length=1)
    selects_for: list[LocalSetting] = later([])

    @field_validator("metric")
    @classmethod
    def _on_validation_samples(cls, metric: SearchMetric) -> SearchMetric:
        if metric.quantity.selection:
            raise ValueError("`mix: fixed`: the others select on test samples")
        if isinstance(metric, OfMeasure) and not metric.measure.validated:
            raise ValueError("a measure on samples, not a value that methods report")
        return metric

    @model_validator(mode="after")
    def _each_method_once(self) -> Self:
        methods = [searched.method for searched in self.methods]
        twice = next((each for each in methods if methods.count(each) > 1), None)
        if twice:
            raise ValueError(f"each method once, but {twice} appears twice: merge its grids")
        return self

    def with_task_defaults(self, task: str) -> "Search":
        """The search on data of a task: without accuracies, by loss if it names no metric."""
        if task != "regression" or "metric" in self.model_fields_set:
            return self
        return self.model_copy(update={"metric": SearchedScore(name="loss")})

    def setting_at(self, scale: Scale) -> str:
        """The setting at a scale, without validation samples."""
        return self.demo if scale == "demo" and self.demo else self.setting

    def reading(self, setting: str) -> str:
        """The name of a setting in which clients keep validation samples."""
        return validated_name(setting, self.validation)


PublishedOf = Callable[[Searched], Mapping[str, Scalar] | None]


def variants_of(search: Search, published: PublishedOf) -> dict[str, Hyperparameters]:
    """The parts of all candidates, by name, for ``methods`` of their setting."""
    return {
        name: values
        for searched in search.methods
        for candidate in searched.candidates(published(searched))
        for name, values in searched.variants(candidate).items()
    }


def settings_of(search: Search, published: PublishedOf) -> dict[str, Hyperparameters]:
    """The changed keys of the setting by suffix, of all candidates that there may be."""
    return {
        candidate.suffix: {key: candidate.values[key] for key in searched.keys}
        for searched in search.methods
        if searched.keys
        for candidate in searched.as_far_as_it_may_go().candidates(published(searched))
    }
