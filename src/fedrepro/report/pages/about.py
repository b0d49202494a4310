"""What pages say of a published table or figure: its text, its name, its other scales."""

from typing import Any

from fedrepro.config.targets import TableTarget, Target
from fedrepro.config.workbench import Workbench
from fedrepro.report.papers.claim import CompactTest
from fedrepro.report.papers.pairs import judge_printed, printed_pairs
from fedrepro.report.papers.published import Published, Spread, System, label_of, split_part


def about(published: Published, system: str, item: str, table: str) -> dict[str, Any]:
    """The text that every page of a published table shows about it."""
    reference = published.references.of_paper(system)
    return {
        "links": reference[1].links if reference else [],
        "system": published.systems.get(system) or _without_paper(system),
        "item": item,
        "label": label_of(item, table),
        "caption": published.captions.get((system, item)),
        "notes": published.notes.get((system, split_part(item)[0]), ()),
        "claims": [
            {
                "claim": claim,
                "printed": judge_printed(claim, printed_pairs(claim, published), spread),
            }
            for claim in published.claims_on(system, item)
            for spread in (published.systems[system].spread,)
        ],
        "discrepancies": published.discrepancies(system, item),
    }


def _without_paper(system: str) -> System:
    """The description of a user's own experiment, which is of no paper."""
    spread = Spread(over="none", source="no paper")
    return System(system=system, name=system, title=system, changes="", paper="", spread=spread)


def use_of(target: Target, papers: Published) -> dict[str, str]:
    """The address and name of a table or figure, for links."""
    system = papers.systems.get(target.system)
    published = target.table.published if isinstance(target, TableTarget) else None
    printed = published.table if published else ""
    return {
        "page": f"{target.system}/{target.item}.html",
        "label": f"{system.name if system else target.system}, {label_of(target.item, printed)}",
    }


def scales_of(
    workbench: Workbench, published: Published, target: TableTarget, *, demo: bool
) -> list[tuple[str, str]]:
    """A table at all scales: names and addresses beside its page; "" is the address of the page.

    A printed table and a compact one belong together if a claim about the first is tested by the
    second.

    Args:
        demo: whether the page has numbers of scale demo.
    """
    system, compact = target.system, target.scale == "compact"
    small = workbench.experiments[system].compact
    scales: dict[str, str] = {}
    if not compact:
        scales["paper"] = ""
    for claim in published.claims:
        test = claim.compact
        if claim.system != system or not isinstance(test, CompactTest) or test.table not in small:
            continue
        if compact and test.table == target.item:
            for item in claim.tables:
                scales[f"paper: {published.label_of(system, item)}"] = f"{item}.html"
        elif not compact and {target.item, split_part(target.item)[0]} & {*claim.tables}:
            name = test.table.removeprefix("compact_").replace("_", " ")
            scales[f"compact: {name}"] = f"{test.table}.html"
    if compact:
        scales["compact"] = ""
    if demo and target.scale == "demo":
        scales["demo"] = "#demo"
    return [*scales.items()]
