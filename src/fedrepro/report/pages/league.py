"""The league as a page, CSV, LaTeX and JSON: the own method's matches, and all methods by group."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.league import BASELINE_LABEL, GroupRanks, League, PlayedMatch
from fedrepro.report.drawing.charts import diagram
from fedrepro.report.drawing.forest import strips
from fedrepro.report.pages.downloads import in_template, rows_as_csv
from fedrepro.report.pages.templates import Renderer
from fedrepro.report.papers.references import References
from fedrepro.support.grouping import grouped
from fedrepro.support.names import Composition
from fedrepro.support.printing import counted

PAGE = Path("league.html")
LOCAL = "local"  # the method without communication, whose lead the page explains
HEADER = (
    "group", "system", "match", "setting", "metric", "unit", "method", "own", "seeds", "mean",
    "std", "rank", "lead_over_fedavg", "low", "high", "why_not_ranked",
)  # fmt: skip


def write_league(
    renderer: Renderer, workbench: Workbench, league: League, works: References
) -> Path:
    """Write the page, and CSV and LaTeX beside it."""
    renderer.write_file(PAGE.with_suffix(".csv"), rows_as_csv(HEADER, list(_csv_rows(league))))
    renderer.write_file(PAGE.with_suffix(".tex"), as_latex(league))
    return renderer.write(PAGE, "league.html.j2", _page(workbench, league, works))


def _page(workbench: Workbench, league: League, works: References) -> dict[str, Any]:
    """The content of the page."""
    leads = [played.lead(league.own) for played in league.played]
    intervals = [
        (lead.lead, (lead.high - lead.low) / 2)
        for lead in leads
        if lead and lead.low is not None and lead.high is not None
    ]
    drawn = iter(strips(intervals) if intervals else ())
    return {
        "league": league,
        "rows": [
            (played, lead, next(drawn) if lead and lead.low is not None else "")
            for played, lead in zip(league.played, leads, strict=True)
        ],
        "groups": _groups(league),
        "settings": [_setting(workbench, played) for played in league.played],
        "sources": _sources(workbench, league, works),
        "standings": {standing.group: _drawn(league, standing) for standing in league.standings},
        "widened": bool(intervals) and not league.preliminary,
        "baseline": BASELINE_LABEL,
    }


def _setting(workbench: Workbench, played: PlayedMatch) -> dict[str, Any]:
    """What a match is played in, its best method, and those that are not shown to be behind."""
    setting = workbench.setting(played.match.setting)
    scores = played.scores
    best = max(scores, key=lambda name: scores[name], default="")
    leads = {name: played.lead(best, name) for name in scores if name != best}
    return {
        "played": played,
        "setting": setting,
        "best": played.entry(best),
        "near": [name for name, lead in leads.items() if lead and not lead.is_above(0.0)],
    }


def _sources(
    workbench: Workbench, league: League, works: References
) -> dict[str, list[tuple[str, str, bool]]]:
    """By method, its parts, each with the address of its paper or "", and whether it has BibTeX."""
    sources = {}
    for played in league.played:
        setting = workbench.setting(played.match.setting)
        for entry in played.entries:
            composition, _ = workbench.composition_of(setting, entry.method)
            parts = Composition.parse(composition).names
            known = [(part, works.of_method(part)) for part in parts]
            sources[entry.name] = [
                (part, next(iter(work[1].links), ("", ""))[1] if work else "", work is not None)
                for part, work in known
            ]
    return sources


def _groups(league: League) -> list[dict[str, Any]]:
    """The matches of each group and its methods: those with a mean rank first."""
    ranked = {standing.group: standing.mean_ranks for standing in league.standings}
    groups = []
    for group, matches in grouped(league.played, lambda played: played.match.group).items():
        entries = [entry for played in matches for entry in played.entries]
        mean_ranks = ranked.get(group)
        means = mean_ranks.means if mean_ranks else {}
        groups.append(
            {
                "name": group,
                "matches": matches,
                "methods": list(dict.fromkeys([*means, *(entry.name for entry in entries)])),
                "means": means,
                "local": any(entry.method == LOCAL for entry in entries),
            }
        )
    return groups


def _drawn(league: League, standing: GroupRanks) -> dict[str, Any] | None:
    if standing.mean_ranks is None:
        return None
    means = standing.mean_ranks.means
    listed = ", ".join(f"{name} {mean:.2f}" for name, mean in means.items())
    own = league.own if league.own in means else None
    svg = diagram(standing.mean_ranks, own, f"Mean ranks, {standing.group}: {listed}")
    return {"svg": svg, "words": in_words(standing, own)}


def in_words(standing: GroupRanks, own: str | None) -> str:
    """A critical-difference diagram in sentences."""
    ranked = standing.mean_ranks
    if ranked is None:
        return "fewer than two methods have a result in all settings: no mean ranks"
    text = (
        f"{len(ranked.means)} methods with a result in "
        f"{counted(ranked.settings, 'setting')}, critical difference {ranked.critical:.2f}"
    )
    if not ranked.can_decide:
        return (
            f"{text}: with so few settings it is beyond the largest possible difference, "
            f"{len(ranked.means) - 1}, so these ranks decide nothing"
        )
    if own is None:
        return text
    parts = [
        f"{', '.join(names)} significantly {word}"
        for names, word in zip(ranked.apart_from(own), ("better", "worse"), strict=True)
        if names
    ]
    return f"{text}: {'; '.join(parts) or f'no method differs significantly from {own}'}"


def _csv_rows(league: League) -> Iterator[list[str]]:
    """A line for each method in each match, as :data:`HEADER` says."""
    for played in league.played:
        match, ranks = played.match, played.ranks
        for entry in played.entries:
            mean, lead = entry.estimate, played.lead(entry.name)
            numbers = (
                mean and mean.mean, mean and mean.std, ranks.get(entry.name),
                lead and lead.lead, lead and lead.low, lead and lead.high,
            )  # fmt: skip
            yield [
                match.group, match.system, match.label, match.setting, match.quantity.words,
                match.quantity.unit, entry.name, str(entry.name == played.own).lower(),
                str(len(entry.values)), *("" if value is None else str(value) for value in numbers),
                entry.why,
            ]  # fmt: skip


def as_latex(league: League) -> str:
    """A table for each group: methods, their means in each match, and the mean rank."""
    return in_template("league.tex.j2", league=league, groups=_groups(league))


def as_json(league: League) -> dict[str, Any]:
    """The league as JSON values."""
    return {
        "method": league.own,
        "about": league.about,
        "preliminary": league.preliminary,
        "matches": [_match_as_json(played) for played in league.played],
        "standings": [
            {
                "group": group.group,
                "settings": group.mean_ranks.settings if group.mean_ranks else 0,
                "critical_difference": group.mean_ranks.critical if group.mean_ranks else None,
                "mean_ranks": dict(group.mean_ranks.means) if group.mean_ranks else {},
                "words": in_words(group, league.own),
            }
            for group in league.standings
        ],
        "cannot_run": dict(league.unable),
        "left_out": dict(league.left_out),
        "searched": [asdict(choice) for choice in league.searched],
    }


def _match_as_json(played: PlayedMatch) -> dict[str, Any]:
    ranks, match = played.ranks, played.match
    return {
        "group": match.group,
        "match": match.title,
        "setting": match.setting,
        "earlier_rule": match.earlier_rule,
        "metric": match.quantity.words,
        "higher_is_better": match.quantity.higher_is_better,
        "seeds": list(played.seeds),
        "methods": [
            {
                "name": entry.name,
                "values": {str(seed): value for seed, value in entry.values.items()},
                "rank": ranks.get(entry.name),
                "why": entry.why,
                "lead_over_fedavg": lead and asdict(lead),
            }
            for entry in played.entries
            for lead in [played.lead(entry.name)]
        ],
    }
