"""The page of the league: the own method's matches, and all methods by group (docs/league.md)."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedrepro.report.cells.league import League, Standing
from fedrepro.report.cells.matches import BASELINE_LABEL, Played
from fedrepro.report.drawing.forest import strips
from fedrepro.report.drawing.ranks import diagram
from fedrepro.report.papers.leads import PairedTest
from fedrepro.support.printing import counted

PAGE = Path("league.html")
LOCAL = "local"  # the method without communication, whose lead the page explains


def league_page(league: League) -> dict[str, Any]:
    """The content of the page."""
    rows = [_row(each) for each in league.played]
    intervals = [row["strip"] for row in rows if row["strip"]]
    drawn = iter(strips(intervals) if intervals else ())
    for row in rows:
        row["strip"] = next(drawn) if row["strip"] else ""
    groups = [
        group_of(league, each) for each in dict.fromkeys(p.match.group for p in league.played)
    ]
    return {
        "own": league.own,
        "rows": rows,
        "groups": groups,
        "standings": {each.group: _drawn(league, each) for each in league.standings},
        "unable": league.unable or {},
        "searched": league.searched,
        "about": league.about,
        "preliminary": league.preliminary,
        "widened": bool(intervals) and not league.preliminary,
        "left_out": left_out(league.played),
        "baseline": BASELINE_LABEL,
    }


def _row(played: Played) -> dict[str, Any]:
    """The own method's line of a match."""
    own = played.entry(played.own)
    lead = played.lead(played.own, BASELINE_LABEL) if played.own else None
    interval = None
    if lead and lead.low is not None and lead.high is not None:
        interval = (lead.lead, (lead.high - lead.low) / 2)
    return {
        "played": played,
        "own": own,
        "lead": lead,
        "strip": interval,
        "rank": played.ranks.get(played.own) if played.own else None,
    }


def group_of(league: League, group: str) -> dict[str, Any]:
    """The numbers of all methods in a group of matches."""
    matches = [each for each in league.played if each.match.group == group]
    names = dict.fromkeys(entry.name for each in matches for entry in each.entries)
    found = next((each.found for each in league.standings if each.group == group), None)
    means = found.means if found else {}
    ordered = [*means, *(name for name in names if name not in means)]
    return {
        "name": group,
        "matches": matches,
        "methods": ordered,
        "means": means,
        "local": any(entry.method == LOCAL for each in matches for entry in each.entries),
    }


def _drawn(league: League, standing: Standing) -> dict[str, Any] | None:
    found = standing.found
    if found is None:
        return None
    about = f"{standing.group}: " + ", ".join(
        f"{name} {mean:.2f}" for name, mean in found.means.items()
    )
    own = league.own if league.own in found.means else None
    return {
        "found": found,
        "svg": diagram(found, own, f"Mean ranks, {about}"),
        "words": in_words(standing, own),
    }


def in_words(standing: Standing, own: str | None) -> str:
    """What a critical-difference diagram shows, in sentences."""
    found = standing.found
    if found is None:
        return "fewer than two methods have a result in all settings: no mean ranks"
    text = (
        f"{len(found.means)} methods with a result in "
        f"{counted(found.settings, 'setting')}, critical difference {found.critical:.2f}"
    )
    if not found.can_decide:
        return (
            f"{text}: with so few settings it is beyond the largest possible difference, "
            f"{len(found.means) - 1}, so these ranks decide nothing"
        )
    if own is None:
        return text
    better, worse = found.apart_from(own)
    told = [
        f"{', '.join(names)} significantly {word}"
        for names, word in ((better, "better"), (worse, "worse"))
        if names
    ]
    return f"{text}: {'; '.join(told) or f'no method differs significantly from {own}'}"


def left_out(played: Iterable[Played]) -> list[tuple[str, str]]:
    """The methods that do not play in some match, and why."""
    found = {(name, why) for each in played for name, why in each.left_out.items()}
    return sorted(found)


def lead_in_words(lead: PairedTest | None) -> str:
    """Such as ``+1.20 [+0.40, +2.00]``; "" without a lead."""
    if lead is None:
        return ""
    interval = "" if lead.low is None else f" [{lead.low:+.2f}, {lead.high:+.2f}]"
    return f"{lead.lead:+.2f}{interval}"
