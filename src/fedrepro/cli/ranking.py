"""The league on a terminal."""

from collections.abc import Iterator

from fedrepro.report.cells.league import League
from fedrepro.report.cells.matches import BASELINE_LABEL, Entry, Played
from fedrepro.report.pages.league import PAGE, in_words, lead_in_words, left_out
from fedrepro.report.pages.templates import SITE
from fedrepro.support.printing import sentence_case


def header(league: League) -> tuple[str, ...]:
    """The heads of :func:`facts`."""
    own = str(league.own)
    return ("setting", own, BASELINE_LABEL, "best other", "lead (95 %)", "rank", "seeds")


def facts(league: League, played: Played) -> tuple[str, ...]:
    """A line about the own method in a match."""
    best, rank = played.best_other, played.ranks.get(str(league.own))
    return (
        f"{played.match.title}{'' if played.match.measure.rising else ' (lower is better)'}",
        _mean(played.entry(league.own)),
        _mean(played.baseline),
        f"{_mean(best)} {best.name}" if best else "",
        lead_in_words(played.lead(str(league.own), BASELINE_LABEL)),
        f"{rank:g} of {len(played.ranks)}" if rank else "",
        str(len(played.seeds)),
    )


def _mean(entry: Entry | None) -> str:
    found = entry.estimate if entry else None
    if found is None:
        return entry.why if entry else ""
    return f"{found.mean:.2f}" if found.std is None else f"{found.mean:.2f} ± {found.std:.2f}"


def remarks(league: League) -> Iterator[str]:
    """What is said below the table."""
    for standing in league.standings:
        if standing.found:
            # Not by commas, which names have: "Per-FedAvg, HF".
            means = "; ".join(f"{name} {mean:.2f}" for name, mean in standing.found.means.items())
            yield f"Mean ranks, {standing.group}: {means}."
        yield f"{standing.group}: {in_words(standing, league.own)}."
    if alone := [each.match.title for each in league.played if not each.ranks]:
        yield f"No rank in {'; '.join(alone)}: no two methods have a result with all seeds."
    if league.preliminary:
        yield f"{sentence_case(league.preliminary)}: a rank in the league needs at least five."
    for each in league.searched:
        if each.chosen is None:
            yield f"{each.setting}: no search: {each.why}."
        else:
            values = ", ".join(f"{key}={value}" for key, value in each.chosen.items())
            of = f"{each.tried} of {each.candidates} candidates scored on validation samples"
            yield f"{each.setting}: {values}, the best of {of}."
    for title, why in (league.unable or {}).items():
        yield f"Can't run in {title}: {why}"
    for name, why in left_out(league.played):
        yield f"Left out: {name}: {why}."
    yield "Built-in methods have their papers' hyperparameters; no choice used test samples."
    yield f"Made with {league.about}."
    yield str(SITE / PAGE)
