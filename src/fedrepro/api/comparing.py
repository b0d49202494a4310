"""Compare and plot runs."""

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from numbers import Integral
from pathlib import Path

import numpy as np
import pandas as pd

from fedrepro.api import charts
from fedrepro.api.runs import Run, place_of
from fedrepro.measures import over_clients, registry
from fedrepro.provenance.identity import (
    UNKNOWN,
    Identity,
    class_of,
    differences,
    may_average,
    other_numbers,
)
from fedrepro.report.drawing import curves, frame
from fedrepro.run.tracking import PROGRAMS
from fedrepro.support.errors import bad_value, refusal
from fedrepro.support.files import write_atomically
from fedrepro.support.printing import counted

# Columns that are no measure of a model, and of which less is better.
LESS = {"bytes_down", "bytes_up", "client_accuracy_std"}
OF_SAMPLES = ("content_sha256", "clients_sha256", "own_inputs", "own_mean")  # of a manifest's data
Group = Run | Sequence[Run]  # one run, or several that differ only in their seed


def compare(
    runs: Run | Sequence[Group] | Mapping[str, Group],
    of: str | None = None,
    last: int = 1,
    average_across: bool = False,
) -> "pd.DataFrame":
    """Compare the final scores of runs: the mean over their last rounds and seeds.

    Args:
        runs: a run, or runs, or lists of runs that differ only in their seed; a mapping names them.
        of: a column of ``rounds``; None for the first that all have of test_accuracy,
            client_accuracy and test_loss (:attr:`fedrepro.api.runs.Run.rounds` says of whom).
        last: the number of evaluated rounds to average, at most those that each run has.
        average_across: whether to average runs of different architectures or minor versions of
            PyTorch.

    Returns:
        One row for each: ``seeds`` and ``diverged`` (their numbers), ``mean``, ``std`` (over seeds;
        NaN for one) and ``gain`` over the first row, above 0 where it is better: the mean of the
        differences of ``paired`` seeds, those that both have, or of the means if there are none. A
        diverged run has no final score: with one, the row has no mean, and no gain over it exists.
        Nor does a gain over runs that were scored on other samples, such as one on the test set
        and one that shares no model on clients' own, or by another loss or measure of yours where
        that is the column: a warning names them.

    Raises:
        UserError: for no runs, an unfinished run, an unknown column, or a run with fewer rounds
            than ``last``, and for a list whose runs differ in more than their seed, or have one
            twice.

    Examples:
        With the ``clients`` of :func:`fedrepro.train`'s example:

        >>> import fedrepro as fr
        >>> def runs(method):
        ...     return [
        ...         fr.train(method, "logistic", clients, rounds=20, test=(x, y), seed=seed)
        ...         for seed in (1, 2)
        ...     ]
        >>> fr.compare({method: runs(method) for method in ("fedavg", "scaffold")})
                       seeds  diverged  mean  std  gain  paired
        test_accuracy
        fedavg             2         0   1.0  0.0   0.0       2
        scaffold           2         0   1.0  0.0   0.0       2
    """
    if not isinstance(average_across, bool | np.bool):
        raise bad_value("fedrepro", "average_across", average_across, "True or False")
    named = _named(runs, across=average_across)
    if not isinstance(last, Integral) or isinstance(last, bool) or last < 1:
        raise bad_value("fedrepro", "last", last, "a whole number of at least 1")
    for name, group in named.items():
        if begun := next((run for run in group if not run.finished), None):
            why = f"{name}: seed {begun.seed}: unfinished: no final score yet"
            raise refusal("fedrepro", why, name, code="missing")
    column = charts.score_of(group[0] for group in named.values()) if of is None else of
    ends = {
        name: pd.Series({run.seed: _end(run, column, last) for run in group}, dtype=float)
        for name, group in named.items()
    }
    base, first = next(iter(ends.items()))
    better = _sign(column, named[base][0])
    rows = {}
    for name, end in ends.items():
        mean, over = end.mean(skipna=False), first.mean(skipna=False)
        both = end.index.intersection(first.index)
        gain = (end[both] - first[both]).mean() if len(both) else mean - over
        if math.isnan(mean + over):
            gain = math.nan
        if why := _scored_otherwise(column, named[name][0], named[base][0]):
            gain, both = math.nan, both[:0]
            line = f"compare: {name}: no gain: scored otherwise than {base} ({why})"
            warnings.warn(line, stacklevel=2)
        rows[name] = {
            "seeds": len(end),
            "diverged": sum(run.diverged_at is not None for run in named[name]),
            "mean": mean,
            "std": end.std(skipna=False),
            "gain": 0.0 + better * gain,  # 0.0 is added so that none is -0.0
            "paired": len(both),
        }
    types = dict.fromkeys(("seeds", "diverged", "paired"), int)
    return pd.DataFrame.from_dict(rows, orient="index").astype(types).rename_axis(column)


@dataclass(frozen=True)
class Chart:
    """A chart, which notebooks display.

    Attributes:
        svg: the text of an SVG file.
    """

    svg: str = field(repr=False)

    def _repr_svg_(self) -> str:  # Jupyter calls this
        return self.svg

    def save(self, path: str | Path) -> None:
        """Write an SVG file, or a PNG file of twice its size, as the path's ending says.

        Raises:
            UserError: for another ending, for PNG without the extra ``png``, or if the file cannot
                be written.
        """
        file = place_of(path, "fedrepro", "path", "the path of a file")
        ending = file.suffix.lower()
        if ending not in (".svg", ".png"):
            wanted = "a name that ends in .svg or .png"
            raise bad_value("fedrepro", "path", str(path), wanted)
        content = charts.as_png(self.svg) if ending == ".png" else self.svg.encode("utf-8")
        with write_atomically(file) as temporary:
            temporary.write_bytes(content)


def plot(runs: Run | Sequence[Group] | Mapping[str, Group], of: str | None = None) -> Chart:
    """Plot learning curves: for each group, the mean and the range over seeds.

    A diverged run's curve ends before the round in which it diverged, and the key says so. It also
    says which seeds are left out, because they diverged before their first point. A warning names
    runs that were scored otherwise than the first, as in :func:`compare`.

    Args:
        runs: as in :func:`compare`.
        of: a column of ``rounds``, as in :func:`compare`.

    Raises:
        UserError: if the seeds of a group have no evaluated round in common, or all diverged before
            their first.

    Examples:
        With the ``clients`` of :func:`fedrepro.train`'s example:

        >>> import fedrepro as fr
        >>> run = fr.train("fedavg", "logistic", clients, rounds=2, test=(x, y))
        >>> fr.plot([run]).save("curve.svg")
    """
    named = _named(runs, across=True)  # a line for each run
    column = charts.score_of(group[0] for group in named.values()) if of is None else of
    lines, gone = charts.lines_of(named, column)
    base, (first, *_) = next(iter(named.items()))
    for name, (run, *_) in named.items():
        if why := _scored_otherwise(column, run, first):
            warnings.warn(f"plot: {name}: scored otherwise than {base} ({why})", stacklevel=2)
    names = [*(line.name for line in lines), *gone]
    drawn = curves.with_key(charts.drawn(lines, column), names)
    return Chart(charts.coloured(drawn, frame.LARGEST))


def _named(
    runs: Run | Sequence[Group] | Mapping[str, Group], *, across: bool = False
) -> dict[str, list[Run]]:
    """Groups of runs by name; without names, by method, numbered if methods repeat.

    Raises:
        UserError: if there are no runs, or if those of a group differ in more than their seed, or
            in their arithmetic.
    """
    given = [runs] if isinstance(runs, Run) else runs
    if not isinstance(given, Iterable):
        raise bad_value("fedrepro", "runs", given, "runs, or lists of runs")
    groups = [_listed(group) for group in (given.values() if isinstance(given, Mapping) else given)]
    if not groups or not all(groups) or not all(isinstance(run, Run) for run in chain(*groups)):
        why = "runs: expected at least one run, and one in each list"
        raise refusal("fedrepro", why, "runs", code="missing")
    methods = [group[0].method for group in groups]
    numbered = [
        name if methods.count(name) == 1 else f"{name} {number}"
        for number, name in enumerate(methods, 1)
    ]
    names = given if isinstance(given, Mapping) else numbered
    named = dict(zip(map(str, names), groups, strict=True))
    if len(named) < len(groups):
        raise bad_value("fedrepro", "runs", [*map(repr, names)], "names that differ as text")
    for name, group in named.items():
        identities = [Identity.of(run.manifest) for run in group]
        if not may_average(identities, across_machines=across):
            classes = {identity.arithmetic for identity in identities}
            words = (
                class_of(identity, across_machines=len(classes) > 1) for identity in identities
            )
            differing = "; ".join(dict.fromkeys(words))
            why = f"{name}: seeds of arithmetic {differing}: not averaged"
            raise refusal("fedrepro", why, name)
        _refuse_unlike(name, group, identities)
    return named


def _refuse_unlike(name: str, group: Sequence[Run], identities: Sequence[Identity]) -> None:
    """Refuse runs of a group that differ in more than their seed, or do not differ in it."""
    seeds = [run.seed for run in group]
    for seed in seeds:
        if seeds.count(seed) > 1:
            raise bad_value("fedrepro", f"{name}: seed", seed, "one run of each seed in a list")
    sizes = [run.manifest.get("parameters") for run in group if "parameters" in run.manifest]
    if len({*sizes}) > 1:
        wanted = f"{sizes[0]}, as its first run has: their models differ"
        raise bad_value("fedrepro", f"{name}: parameters", sizes[-1], wanted)
    first, *others = map(_but_seed, identities)
    for own in others:
        for differing in other_numbers(differences(own, first)):
            wanted = f"{differing.wanted}, as its first run has"
            wanted = "that of its first run" if differing.about == "code" else wanted
            raise bad_value("fedrepro", f"{name}: {differing.key}", differing.recorded, wanted)


def _scored_otherwise(column: str, run: Run, other: Run) -> str:
    """Return why a column's scores of two runs are not of the same samples, if known; or "".

    Or not by the same loss, where the column is that, or not by the same measure of your own.
    """
    whose, _, part = column.partition("_")
    one, two = (Identity.of(each.manifest) for each in (run, other))
    keys = {each.key for each in differences(_but_seed(one), _but_seed(two))}
    if column == f"{whose}_loss" and any(key.startswith("loss") for key in keys):
        return "another loss"
    if {f"measure {column}", f"measure {part}"} & keys:
        return "another measure of this name, or one that calls change: give each run a new one"
    if whose not in ("test", "client", "validation"):  # such as bytes_up
        return ""
    ended = run.diverged_at is None and other.diverged_at is None
    if whose == "test" and ended and _on_test_set(column, run) != _on_test_set(column, other):
        return "one on the test set, one on the samples that clients hold out"
    contents = {each.data.get("content_sha256") for each in (one, two)} - {None}
    if len(contents) > 1:
        return "other data"
    for key in ("test_fraction", *(("validation",) if whose == "validation" else ())):
        parts = [each.configuration.get("partition", {}).get(key) or 0.0 for each in (one, two)]
        # Where clients of one run hold out none, both were tested on samples of no client.
        if parts[0] != parts[1] and not (whose == "test" and 0.0 in parts):
            return f"{key} {parts[0]} for {parts[1]}"
        owners = {own.data.get("clients_sha256") for own in (one, two)} - {None}
        if any(parts) and len(owners) > 1:
            return "samples that other clients hold out"
    return ""


def _on_test_set(column: str, run: Run) -> bool:
    """Return True if a column is of the shared model on the test set, not of clients' own samples.

    No file of a run says so; but over clients, it is the mean of their scores. A loss that is not
    tells of a test set even where two accuracies are alike.
    """
    if "clients.parquet" not in run.manifest.get("files", {}):
        return True
    measure = registry.find(column.partition("_")[2], "round", folders=run.plugins)
    also = ("test_loss",) if measure and measure.column == column else ()
    clients, end = run.clients, run.rounds.iloc[-1]
    last = clients[clients["round"] == end["round"]]
    for name in (column, *also):
        scores = last.get(name.partition("_")[2])
        if scores is None:
            return True
        values, sizes = (each.to_numpy(dtype=float) for each in (scores, last["test_samples"]))
        mean = over_clients.average(values[sizes > 0], sizes[sizes > 0])
        if not math.isclose(mean, end[name], rel_tol=1e-9, abs_tol=1e-12):
            return not math.isnan(mean + end[name])
    return False


def _but_seed(identity: Identity) -> Identity:
    """The part of an identity that runs of all seeds share, as far as it can be compared.

    The id of a model that a program gives is that of its first weights, which a seed draws.
    """
    drawn = "model " if identity.configuration.get("setting") == PROGRAMS else UNKNOWN
    return Identity(
        configuration={**identity.configuration, "seed": None},
        numerics={
            part: text
            for part, text in identity.numerics.items()
            if not part.startswith(drawn) and not text.startswith(UNKNOWN)
        },
        data={key: value for key, value in identity.data.items() if key in OF_SAMPLES},
    )


def _listed(group: Group) -> list[Run]:
    return list(group) if isinstance(group, Iterable) and not isinstance(group, Run) else [group]


def _sign(column: str, run: Run) -> int:
    """-1 for a column of which less is better, such as a loss; else 1."""
    if column in LESS:
        return -1
    for name in (column, column.partition("_")[2]):  # such as mse of client_mse
        measure = registry.find(name, "client", "round", folders=run.plugins) if name else None
        higher = measure.higher_is_better if measure else run.higher_is_better.get(name)
        if higher is not None:
            return 1 if higher else -1
    own = run.manifest.get("run", {}).get("evaluate", {}).get("measures", ())
    if {column, column.partition("_")[2]} & {*own}:
        wanted = f"a column of which it is known whether more is better: {column} is of a measure "
        whose = "of the program that made the run"
        if run.setting != PROGRAMS:
            whose = "in a file of its workbench: load it by setting and method"
        raise bad_value("fedrepro", "of", column, f"{wanted}{whose}")
    return 1


def _end(run: Run, column: str, last: int) -> float:
    """The mean of a run's last values; NaN if it diverged: its last number is of no model.

    Raises:
        UserError: if it has fewer rounds.
    """
    scores = charts.column_of(run, column)
    if run.diverged_at is not None:
        return float("nan")
    if len(scores) < last:
        there = counted(len(scores), "evaluated round")
        wanted = f"at most the {there} of {run.method}, seed {run.seed}"
        raise bad_value("fedrepro", "last", last, wanted)
    return float(scores.tail(last).mean(skipna=False))
