"""Several runs beside each other."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fedrepro.api.runs import Run
from fedrepro.support.errors import UserError, bad_value
from fedrepro.support.files import write_atomically

if TYPE_CHECKING:
    import pandas as pd

Group = Run | Sequence[Run]  # one run, or several that differ in their seed


def compare(
    runs: Sequence[Group] | Mapping[str, Group], of: str | None = None, last: int = 1
) -> "pd.DataFrame":
    """What runs came to: the mean of their last rounds, over seeds.

    Args:
        runs: runs, or lists of those that differ in their seed; as a mapping, with their names.
        of: a column of ``rounds``; without, the accuracy on test samples, or on clients' own.
        last: how many evaluated rounds count.

    Returns:
        Of each: seeds (how many), mean, std (over seeds; NaN of one), and ``gain``, the mean
        difference from the first one, seed by seed where both have the same, else of the means.
    """
    import pandas as pd

    named = _named(runs)
    column = of or _score(group[0] for group in named.values())
    ends = {
        name: pd.Series(
            {run.seed: _column(run, column).tail(last).mean() for run in group}, dtype=float
        )
        for name, group in named.items()
    }
    first = next(iter(ends.values()))
    rows = {
        name: {
            "seeds": len(end),
            "mean": end.mean(),
            "std": end.std(),
            "gain": (end - first).mean()
            if set(end.index) == set(first.index)
            else end.mean() - first.mean(),
        }
        for name, end in ends.items()
    }
    found = pd.DataFrame.from_dict(rows, orient="index").astype({"seeds": int})
    return found.rename_axis(column)


@dataclass(frozen=True)
class Chart:
    """A chart, which a notebook shows.

    Attributes:
        svg: the text of an SVG file.
    """

    svg: str = field(repr=False)

    def _repr_svg_(self) -> str:  # Jupyter's name
        return self.svg

    def save(self, path: str | Path) -> None:
        """Write the SVG file.

        Raises:
            UserError: when the disk refuses.
        """
        with write_atomically(Path(path)) as temporary:
            temporary.write_text(self.svg, encoding="utf-8")


def plot(runs: Sequence[Group] | Mapping[str, Group], of: str | None = None) -> Chart:
    """Learning curves: the mean over seeds of each, and the range of the seeds.

    Args:
        runs: as of :func:`compare`.
        of: a column of ``rounds``.

    Raises:
        UserError: when a group has no value in any round that all of its seeds have.
    """
    from fedrepro.report.drawing import curves, frame
    from fedrepro.report.pages import downloads, templates
    from fedrepro.support.packaged import own_or_packaged

    named = _named(runs)
    column = of or _score(group[0] for group in named.values())
    lines = []
    for name, group in named.items():
        points = [[*zip(run.rounds["round"], _column(run, column), strict=True)] for run in group]
        line = curves.average(name, points)
        if line is None:
            raise UserError(f"fedrepro: {name}: {column}: no number in a round that all seeds have")
        lines.append(line)
    title = column.replace("_", " ")
    ends = ", ".join(f"{line.name} ends at {line.points[-1][1]:.4g}" for line in lines)
    drawn = curves.draw(lines, description=f"{title} by round: {ends}.", unit="", beside=title)
    style = own_or_packaged(Path(), templates.TEMPLATES) / "assets/site.css"
    colours = downloads.light_colours(style.read_text(encoding="utf-8"))
    keyed = curves.with_key(drawn, list(named))
    return Chart(downloads.standalone(keyed, colours, frame.LARGEST))


def _named(runs: Sequence[Group] | Mapping[str, Group]) -> dict[str, list[Run]]:
    """Each group of runs by a name; without one, by the method, and the seed if that is shared.

    Raises:
        UserError: when there are none.
    """
    if isinstance(runs, Mapping):
        found = {str(name): _listed(group) for name, group in runs.items()}
    else:
        groups = [_listed(each) for each in runs]
        alike = [group[0].method for group in groups]
        found = {
            group[0].method
            if alike.count(group[0].method) == 1
            else f"{group[0].method} {number}": group
            for number, group in enumerate(groups, 1)
        }
    if not found or not all(found.values()):
        raise UserError("fedrepro: runs: expected at least one")
    return found


def _listed(group: Group) -> list[Run]:
    return [group] if isinstance(group, Run) else list(group)


def _score(runs: Iterator[Run]) -> str:
    """The accuracy that all of some runs have."""
    tables = [run.rounds for run in runs]
    for name in ("test_accuracy", "client_accuracy"):
        if all(name in table and table[name].notna().any() for table in tables):
            return name
    raise UserError("fedrepro: runs: no accuracy that all have: say which column with `of`")


def _column(run: Run, name: str) -> "pd.Series[float]":
    known = list(map(str, run.rounds))
    if name not in known:
        raise bad_value("fedrepro", "of", name, f"one of {', '.join(known)}", known)
    return run.rounds[name]
