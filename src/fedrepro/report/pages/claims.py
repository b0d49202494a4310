"""The page of the claims, and that of each: whether printed numbers support it, and our runs."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

from fedrepro.config.workbench import Workbench
from fedrepro.report.cells import differences
from fedrepro.report.cells.claims import (
    counted_index,
    index_of,
    judge_claim,
    judge_compact,
    margin_of,
)
from fedrepro.report.cells.findings import Finding, experiments
from fedrepro.report.cells.insights import looked_at
from fedrepro.report.cells.readings import READINGS, Readings
from fedrepro.report.cells.search import at_an_end
from fedrepro.report.drawing.forest import Bar, Mark, forest, verdicts
from fedrepro.report.drawing.style import INK
from fedrepro.report.pages.templates import figure, repository
from fedrepro.report.papers.claim import Claim
from fedrepro.report.papers.leads import LOOKS, POCOCK, Comparison, PairedTest, Single, Word
from fedrepro.report.papers.pairs import PrintedFinding, PrintedWord, judge_printed, printed_pairs
from fedrepro.report.papers.published import Published, System
from fedrepro.run.landed_runs import folder_of
from fedrepro.support.grouping import grouped
from fedrepro.support.printing import MINUS, THIN, with_interval

FARTHEST = 6.0  # half widths; farther leads are drawn there
# Of a verdict's bar; others are grey rings.
STYLE_OF: dict[Word, tuple[str, Mark]] = {
    Word.HOLDS: ("var(--agrees)", "dot"),
    Word.DOES_NOT_HOLD: ("var(--differs)", "square"),
}

FORM = "objection.yml"  # in .github/ISSUE_TEMPLATE


@dataclass(frozen=True)
class ClaimView:
    """A claim with its verdicts.

    Attributes:
        ours: in the text's reading.
        released: in the released code's, as far as it is computed.
        compact: at scale compact; None if nothing there can test it, as the claim says why.
        tables: pages and names of its tables.
        differences: of the settings of its compact runs from the paper's.
        untuned: what the paper tunes and no search of these settings has, and where it says so.
        looked_at: what was looked at before the compact result was believed, or "".
        earlier_rule: the compact settings were chosen by a rule that has been replaced.
    """

    claim: Claim
    printed: PrintedFinding
    ours: Finding
    released: Finding
    compact: Finding | None
    tables: tuple[tuple[str, str], ...]
    differences: tuple[differences.Row, ...]
    untuned: tuple[tuple[str, str], ...]
    looked_at: str
    earlier_rule: bool = False

    @property
    def plot(self) -> str:
        """The compact comparisons and their mean as an SVG; "" without them."""
        if self.compact is None:
            return ""
        computed = (row.test.interval for row in self.compact.computed if row.test)
        tests = [interval for interval in computed if interval]
        overall = self.compact.overall
        about = f"{self.claim.anchor}: leads at scale compact, and their mean"
        return forest(tests, overall.interval if overall else None, self.compact.margin, about)

    @property
    def facts(self) -> dict[str, str | int]:
        """A row: our mean lead, its verdicts, and the number of comparisons behind them."""
        overall, printed, compact = self.ours.overall, self.ours.printed_lead, self.compact
        return {
            "claim": self.claim.anchor,
            "says": self.claim.says,
            "source": self.claim.source,
            "printed": f"{self.printed.word} ({self.printed.held} of {self.printed.of})",
            "lead": _lead_of(overall),
            "printed_lead": f"{printed:+.2f}" if overall and printed is not None else "",
            "ours": _tally(self.ours),
            "needs": self.ours.needs,
            "released": _tally(self.released),
            "compact": compact.verdict if compact else "none",
            "compact_lead": _lead_of(compact.overall) if compact else "",
            "compact_seeds": compact.overall.seeds if compact and compact.overall else 0,
            "compact_diverged": compact.diverged if compact else 0,
            "compact_earlier_rule": self.earlier_rule,
            "compact_rests_on": " or ".join(compact.rests_on) if compact else "",
            "compact_why": compact.why if compact else str(self.claim.compact),
            "seeds": overall.seeds if overall else 0,
        }


def _lead_of(test: PairedTest | None) -> str:
    return with_interval(test.lead, test.interval, _plain) if test else ""


def _plain(lead: float) -> str:
    """As pages show it, but with ASCII's minus."""
    return figure(lead).replace(MINUS, "-").replace(THIN, ",")


def _tally(finding: Finding) -> str:
    """The verdict, and how many of its comparisons have been computed."""
    computed, of = len(finding.computed), len(finding.comparisons)
    how = ", counted" if finding.counted else ""
    return f"{finding.verdict} ({computed} of {of}{how})" if computed else finding.verdict


def views_of(readings: Readings) -> list[ClaimView]:
    """Test all claims on the tables that are computed."""
    workbench, published, tables = readings.workbench, readings.published, readings.tables
    counted = counted_index(workbench, published)
    index, released = (index_of(readings.by_table, which) for which in READINGS)
    views = []
    for claim in published.claims:
        pairs, spread = printed_pairs(claim, published), published.systems[claim.system].spread
        compared = differences.of_claim(workbench, claim)
        pages = (
            (f"{claim.system}/{item}.html", published.label_of(claim.system, item))
            for item in claim.tables
        )
        untuned = (
            row
            for name, keys in compared.items()
            for row in differences.unsearched(workbench, name, keys).items()
        )
        compact = judge_compact(workbench, claim, tables, margin_of(claim, pairs, compact=True))
        views.append(
            ClaimView(
                claim,
                judge_printed(claim, pairs, spread),
                judge_claim(claim, pairs, index, counted),
                judge_claim(claim, pairs, released),
                compact,
                tuple(pages),
                tuple(differences.rows_of(compared)),
                tuple(dict.fromkeys(untuned)),
                looked_at(claim, tables),
                compact is not None
                and workbench.experiments[claim.system].compact[compact.item].earlier_rule,
            )
        )
    return views


def claims_page(published: Published, views: Sequence[ClaimView]) -> dict[str, Any]:
    """The content of the page."""
    return {
        "groups": [
            {"about": system, "views": [view for view in views if view.claim.system == name]}
            for name, system in published.systems.items()
        ],
        "summary": summary(views),
        "looks": LOOKS,
        "least_seeds": LOOKS[0],
        "level": f"{100 * POCOCK:.2f}",
    }


def summary(views: Iterable[ClaimView]) -> dict[str, Any]:
    """Counts: all claims, those by the printed numbers, by our runs, and those that are counted."""
    views = list(views)
    printed = Counter(view.printed.word for view in views)
    small = [view.compact for view in views if view.compact]
    compact = Counter(finding.word for finding in small)
    counts = Counter(view.ours.word for view in views if not view.ours.counted)
    return {
        "total": len(views),
        "printed": {word: printed[word] for word in PrintedWord},
        "ours": {word: counts[word] for word in Word},
        "counted": sum(view.ours.counted for view in views),
        "compact": {word: compact[word] for word in Word},
        "experiments": {
            word: experiments(finding for finding in small if finding.word == word) for word in Word
        },
        "no_compact": len(views) - len(small),
        "earlier_rule": sum(view.earlier_rule for view in views),
    }


def findings_of(views: Iterable[ClaimView]) -> dict[str, dict[str, Any]]:
    """By system: how many claims have each word at scale compact, and a plot of their mean leads.

    ``no_test`` of the ``total`` can't be tested there.

    Claims differ in their units, so a lead beyond the claimed one is drawn in half widths of its
    interval: a bar that does not touch the middle differs significantly from what is claimed.
    """
    findings: dict[str, dict[str, Any]] = {}
    for system, claims in grouped(views, lambda view: view.claim.system).items():
        tested = [(view.claim, view.compact) for view in claims if view.compact]
        counts = Counter(finding.word for _, finding in tested)
        bars = [bar for claim, finding in tested if (bar := _bar_of(claim, finding))]
        bars.sort(key=lambda bar: -bar.at[1])
        findings[system] = {
            "words": {word: counts[word] for word in Word if counts[word]},
            "total": len(claims),
            "no_test": len(claims) - len(tested),
            "experiments": experiments(finding for _, finding in tested),
            "plot": verdicts(bars, f"{system}: claims in small runs"),
        }
    return findings


def _bar_of(claim: Claim, finding: Finding) -> Bar | None:
    """A claim's mean lead in half widths of its interval; None without an interval."""
    overall = finding.overall
    if overall is None or overall.interval is None:
        return None
    low, lead, _ = overall.interval
    if lead <= low:
        return None
    at = _clipped((lead - finding.by) / (lead - low))
    shown = f"{_lead_of(overall)} {finding.unit}".strip()
    decider, rival = None if claim.is_of_the_mean else _decider(finding), None
    if decider and decider.test and decider.test.interval:
        ends = [_clipped((end - finding.by) / (lead - low)) for end in decider.test.interval]
        rival = (ends[0], ends[1], ends[2])
        shown += f". Most against it: {decider.pair.rival}, {_lead_of(decider.test)}"
    colour, mark = STYLE_OF.get(finding.word, (INK, "ring"))
    about = f"{claim.says} {finding.verdict.capitalize()}, {shown}."
    page = f"claims.html#{claim.anchor}"
    return Bar((at - 1, at, at + 1), colour, about, claim.label, page, mark, rival)


def _clipped(place: float) -> float:
    return max(-FARTHEST, min(FARTHEST, place))


def _decider(finding: Finding) -> Comparison | None:
    """Of several comparisons, the one that is most against the claim."""
    against = [row for row in finding.comparisons if row.word == Single.AGAINST]
    rows, end = (against, 2) if against else (finding.computed, 0)
    ends = {row.test.interval[end]: row for row in rows if row.test and row.test.interval}
    return ends[min(ends)] if ends and len(finding.computed) > 1 else None


def claim_page(
    workbench: Workbench, system: System, view: ClaimView, views: Iterable[ClaimView]
) -> dict[str, Any]:
    """The content of a claim's page.

    Args:
        views: all claims, of which those that share runs are named.
    """
    claim, compact = view.claim, view.compact
    experiment = workbench.experiments.get(claim.system)
    runs = _runs(workbench, view)
    settings = {run.setting for run in runs}
    searches = [
        SimpleNamespace(
            page=f"{claim.system}/{item}.html",
            title=search.title,
            at_an_end=[*at_an_end(workbench, workbench.search(claim.system, item, "compact"))],
        )
        for item, search in (experiment.compact_search if experiment else {}).items()
        if settings & {f"{claim.system}/{name}" for name in (search.setting, *search.selects_for)}
    ]
    first = next(iter(runs), None)
    address = repository()
    asked = {"template": FORM, "title": f"Objection: {claim.anchor}", "claim": claim.anchor}
    return {
        "system": system,
        "view": view,
        "runs": runs,
        "searches": searches,
        "witnesses": [
            other.claim
            for other in views
            if compact and other.compact and other is not view
            if compact.runs & other.compact.runs
        ],
        "again": f"make compact ONLY='{claim.system}/{compact.item}' AGAIN=1" if compact else "",
        "explain": f"fedrepro explain {first.setting} {first.methods.split(', ')[0]} --seed 1"
        if first
        else "",
        "form": f"{address}/issues/new?{urlencode(asked)}" if address else "",
        "file": f".github/ISSUE_TEMPLATE/{FORM}",
    }


def _runs(workbench: Workbench, view: ClaimView) -> list[SimpleNamespace]:
    """The runs that a claim rests on, by setting, and the folders that they are kept in."""
    if view.compact is None:
        return []
    target = workbench.table(view.claim.system, view.compact.item, "compact")
    methods: dict[str, dict[str, None]] = {}
    for setting, names in sorted(view.compact.runs):
        methods.setdefault(setting, {}).update(dict.fromkeys(names))
    seeds = {cell.setting: cell.seeds for cell in target.cells}
    return [
        SimpleNamespace(
            setting=setting,
            methods=", ".join(names),
            seeds=", ".join(map(str, seeds[setting])),
            folder=_folder(workbench, setting),
        )
        for setting, names in methods.items()
    ]


def _folder(workbench: Workbench, setting: str) -> str:
    """Where the runs of a setting are: landed or, in a workbench that has made its own, results."""
    landed = folder_of(setting)
    made = Path("results/runs", setting)
    return (landed if (workbench.root / landed).exists() else made).as_posix()
