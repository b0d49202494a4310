"""Several runs beside each other."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fedrepro.api.runs import Run
from fedrepro.support.errors import UserError, bad_value

if TYPE_CHECKING:
    import altair as alt
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


def plot(
    runs: Sequence[Group] | Mapping[str, Group], of: str | None = None
) -> "alt.LayerChart | alt.FacetChart":
    """Learning curves: the mean over seeds of each, and the range of the seeds.

    Args:
        runs: as of :func:`compare`.
        of: a column of ``rounds``.
    """
    import altair as alt
    import pandas as pd

    named = _named(runs)
    column = of or _score(group[0] for group in named.values())
    rows = [
        {"run": name, "round": int(number), "value": value}
        for name, group in named.items()
        for run in group
        for number, value in zip(run.rounds["round"], _column(run, column), strict=True)
    ]
    base = alt.Chart(pd.DataFrame(rows)).encode(
        x=alt.X("round:Q", title="round"), color=alt.Color("run:N", sort=list(named), title=None)
    )
    scale = alt.Scale(zero=False)
    line = base.mark_line().encode(
        y=alt.Y("mean(value):Q", title=column.replace("_", " "), scale=scale)
    )
    band = base.mark_area(opacity=0.2).encode(
        y=alt.Y("min(value):Q", scale=scale), y2="max(value):Q"
    )
    return alt.layer(band, line)


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
