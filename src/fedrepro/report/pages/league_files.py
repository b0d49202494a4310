"""The league as CSV, LaTeX and JSON, and the files of its page."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedrepro.report.cells.league import League
from fedrepro.report.cells.matches import BASELINE_LABEL, Entry, Played
from fedrepro.report.pages.downloads import in_latex, rows_as_csv
from fedrepro.report.pages.league import PAGE, group_of, in_words, league_page, left_out
from fedrepro.report.pages.templates import Renderer

HEADER = (
    "group", "system", "match", "setting", "metric", "unit", "method", "own", "seeds", "mean",
    "std", "rank", "lead_over_fedavg", "low", "high", "why_not_ranked",
)  # fmt: skip


def write_league(renderer: Renderer, league: League) -> Path:
    """Write the page, and CSV and LaTeX beside it."""
    renderer.write_text(PAGE.with_suffix(".csv"), rows_as_csv(HEADER, list(csv_rows(league))))
    renderer.write_text(PAGE.with_suffix(".tex"), as_latex(league))
    return renderer.write(PAGE, "league.html.j2", league_page(league))


def csv_rows(league: League) -> Iterable[list[str]]:
    """A line for each method in each match, as :data:`HEADER` says."""
    for played in league.played:
        match, ranks = played.match, played.ranks
        for entry in played.entries:
            mean = entry.estimate
            lead = played.lead(entry.name, BASELINE_LABEL)
            numbers = (
                mean and mean.mean, mean and mean.std, ranks.get(entry.name),
                lead and lead.lead, lead and lead.low, lead and lead.high,
            )  # fmt: skip
            yield [
                match.group, match.system, match.label, match.setting, match.measure.words,
                match.measure.unit, entry.name, str(entry.name == played.own).lower(),
                str(len(entry.values)), *("" if each is None else str(each) for each in numbers),
                entry.why,
            ]  # fmt: skip


def as_latex(league: League) -> str:
    """A table for each group: methods, their means in each match, and the mean rank."""
    lines = ["% needs \\usepackage{booktabs}; mean and sample standard deviation over seeds"]
    for each in dict.fromkeys(played.match.group for played in league.played):
        group = group_of(league, each)
        matches: list[Played] = group["matches"]
        heads = " & ".join(in_latex(match.match.title) for match in matches)
        lines += [
            "\\begin{tabular}{l" + "r" * (len(matches) + 1) + "}",
            "\\toprule",
            f"{in_latex(each)} & {heads} & mean rank \\\\",
            "\\midrule",
        ]
        for name in group["methods"]:
            cells = [_latex_of(match.entry(name)) for match in matches]
            mean = group["means"].get(name)
            cells.append("--" if mean is None else f"{mean:.2f}")
            shown = in_latex(name)
            shown = f"\\textbf{{{shown}}}" if name == league.own else shown
            lines.append(f"{shown} & {' & '.join(cells)} \\\\")
        lines += ["\\bottomrule", "\\end{tabular}"]
    few = f"; {league.preliminary}" if league.preliminary else ""
    return "\n".join([*lines, f"% {league.about}{few}"]) + "\n"


def _latex_of(entry: Entry | None) -> str:
    found = entry.estimate if entry else None
    if found is None:
        return "diverged" if entry and entry.diverged else "--"
    spread = "" if found.std is None else f" $\\pm$ {found.std:.2f}"
    return f"{found.mean:.2f}{spread}"


def as_json(league: League) -> dict[str, Any]:
    """The league as JSON values."""
    return {
        "method": league.own,
        "about": league.about,
        "preliminary": league.preliminary,
        "matches": [_match_as_json(each) for each in league.played],
        "standings": [
            {
                "group": each.group,
                "settings": each.found.settings if each.found else 0,
                "critical_difference": each.found.critical if each.found else None,
                "mean_ranks": dict(each.found.means) if each.found else {},
                "words": in_words(each, league.own),
            }
            for each in league.standings
        ],
        "cannot_run": dict(league.unable or {}),
        "left_out": dict(left_out(league.played)),
        "searched": [asdict(each) for each in league.searched],
    }


def _match_as_json(played: Played) -> dict[str, Any]:
    ranks, match = played.ranks, played.match
    return {
        "group": match.group,
        "match": match.title,
        "setting": match.setting,
        "metric": match.measure.words,
        "rising": match.measure.rising,
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
            for lead in [played.lead(entry.name, BASELINE_LABEL)]
        ],
    }
