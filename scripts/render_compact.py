"""Render how the settings of scale compact differ from the papers', in docs/differences.md.

docs/compact.md has what is kept, from the same comparison, and the tables with runs to be made.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path

from fedrepro.config.loading import load
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.differences import (
    Difference,
    counterpart_of,
    of_claim,
    of_search,
    rows_of,
    unsearched,
)
from fedrepro.report.papers import published
from fedrepro.report.papers.published import Published
from fedrepro.run import landed_runs

PAGE, SUMMARY = Path("docs/differences.md"), Path("docs/compact.md")
MARKS = "<!-- rendered: {} -->\n", "<!-- end -->"

# By setting, with the paper's if it is not the one that the setting stands for; then by key.
Compared = dict[str, dict[str, Difference]]


def compared(bench: Workbench, papers: Published) -> Compared:
    """All keys of all settings that a claim is judged by; one that differs in a claim differs."""
    found: Compared = {}
    for claim in papers.claims:
        for name, differences in of_claim(bench, claim).items():
            there = counterpart_of(bench, name, claim)
            own = there == counterpart_of(bench, name)
            key = name if own else f"{name} (for {there.partition('/')[2]})"
            _add(found.setdefault(key, {}), differences)
    return found


def with_searched(bench: Workbench, found: Compared) -> Compared:
    """Also the settings that are searched, whose claims are judged by others as yet."""
    found = {name: {**mine} for name, mine in found.items()}
    for system, experiment in bench.experiments.items():
        for item, search in experiment.compact_search.items():
            mine = found.setdefault(f"{system}/{search.setting}", {})
            _add(mine, of_search(bench, system, item))
    return found


def _add(mine: dict[str, Difference], differences: Iterable[Difference]) -> None:
    for each in differences:
        if each.key not in mine or mine[each.key].kept:
            mine[each.key] = each


def _systems(found: Compared) -> dict[str, list[str]]:
    return {
        system: list(names)
        for system, names in groupby(sorted(found), lambda name: name.partition("/")[0])
    }


def whole(bench: Workbench, papers: Published, found: Compared) -> str:
    """For each paper, a row for each key and pair of values that differ, with its settings."""
    lines: list[str] = []
    for system, names in _systems(found).items():
        lines += [f"## {papers.systems[system].name}", ""]
        lines += [
            f"- `{name.partition('/')[2]}` stands for `{bench.setting(name).stands_for}`"
            for name in names
            if "(" not in name
        ]
        lines += ["", "| what | paper | here | ratio | settings |", "|---|---|---|---|---|"]
        rows = rows_of({name: found[name].values() for name in names})
        lines += [f"| {' | '.join(row)} |" for row in rows]
        lines += ["", *_tuned(bench, {name: found[name] for name in names}), ""]
    return "\n".join(lines)


def _tuned(bench: Workbench, found: Compared) -> list[str]:
    """What the paper tunes and these settings do not search."""
    where: dict[tuple[str, str], list[str]] = {}
    for name, mine in found.items():
        for row in unsearched(bench, name.partition(" (")[0], mine.values()).items():
            where.setdefault(row, []).append(name.partition("/")[2])
    if not where:
        return ["All that the paper tunes is searched."]
    lines = ["Tuned in the paper, not searched here:", ""]
    for (key, place), settings in where.items():
        which = "all settings" if len(settings) == len(found) else ", ".join(settings)
        lines.append(f"- `{key}` ({place}): {which}")
    return lines


def summary(found: Compared, papers: Published) -> str:
    """What is kept everywhere, and for what is not, in how many settings and how far it is off."""
    keys = dict.fromkeys(key for mine in found.values() for key in mine)
    kept, rows = [], []
    for key in keys:
        having = {name: mine[key] for name, mine in found.items() if key in mine}
        changed = {name: each for name, each in having.items() if not each.kept}
        if ":" in key and not key.startswith("partition"):
            continue  # of single methods and inputs, which docs/differences.md has
        if not changed:
            kept += [key] if len(having) == len(found) else []
            continue
        rows.append(
            f"| {key} | {len(found) - len(changed)} of {len(found)} | {_off(changed, papers)} |"
        )
    return "\n".join(
        [
            f"Kept in all {len(found)} pairs of a setting and the paper's that a claim is about: "
            f"{', '.join(kept)}.",
            "",
            "| what | kept in | elsewhere, here by the paper's value |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def _off(changed: Mapping[str, Difference], papers: Published) -> str:
    """By paper, the range of ratios."""
    parts = []
    for system, names in _systems({name: {} for name in changed}).items():
        ratios = [changed[name].ratio for name in names]
        numbers = sorted(each for each in ratios if each is not None)
        low, high = (f"{each:.2g}" for each in (numbers[0], numbers[-1])) if numbers else ("", "")
        text = "another" if not numbers else low if low == high else f"{low} to {high}"
        parts.append(f"{papers.systems[system].name} {text}")
    return "; ".join(parts)


def mixed(root: Path, found: Compared) -> str:
    """The settings whose landed runs come from several kinds of processor, and which from which."""
    rows = []
    for name in sorted({name.partition(" (")[0] for name in found}):
        kinds: dict[str, set[str]] = {}
        for run, landed in landed_runs.runs_landed_in(root, name).items():
            machine = landed.manifest["hardware"]
            kind = f"{machine['processor']}, {machine['vector_instructions']}"
            kinds.setdefault(kind, set()).add(run.method)
        if len(kinds) < 2:
            continue
        *few, (most, _) = sorted(kinds.items(), key=lambda each: len(each[1]))
        those = "; ".join(f"{kind}: {', '.join(sorted(methods))}" for kind, methods in few)
        rows.append(f"| `{name}` | {those} | {most} |")
    if not rows:
        return "None.\n"
    return "\n".join(
        ["| setting | methods of another kind | the others |", "|---|---|---|", *rows, ""]
    )


def unmade(bench: Workbench, root: Path) -> str:
    """The tables some of whose runs have never been landed, and how many."""
    rows = []
    for system, experiment in bench.experiments.items():
        for item in experiment.compact:
            runs = bench.target(system, item, "compact").runs
            missing = [
                run for run in runs if run not in landed_runs.runs_landed_in(root, run.setting)
            ]
            if missing:
                rows.append(f"| `{system}/{item}` | {len(missing)} of {len(runs)} |")
    return "\n".join(["| table | runs not made |", "|---|---|", *rows, ""])


def put(text: str, name: str, content: str) -> str:
    """A page with other content between its marks."""
    start, end = MARKS[0].format(name), MARKS[1]
    before, mark, rest = text.partition(start)
    _, _, after = rest.partition(end)
    assert mark, f"no mark {name}"
    return f"{before}{start}{content}{end}{after}"


def render(root: Path = Path()) -> dict[Path, str]:
    """Both pages."""
    bench, papers = load(root), published.load(root)
    found = compared(bench, papers)
    every = with_searched(bench, found)
    page, short = ((root / each).read_text("utf-8") for each in (PAGE, SUMMARY))
    short = put(short, "kept", summary(found, papers))
    short = put(short, "mixed", mixed(root, found))
    return {
        PAGE: put(page, "differences", whole(bench, papers, every)),
        SUMMARY: put(short, "unmade", unmade(bench, root)),
    }


if __name__ == "__main__":
    for path, text in render().items():
        path.write_text(text, encoding="utf-8")
