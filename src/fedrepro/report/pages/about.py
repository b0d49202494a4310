"""The text that every page of a published table or figure shows about it."""

from typing import Any

from fedrepro.report.papers.pairs import judge_printed, pairs_of
from fedrepro.report.papers.published import Published, System, label_of, split_part


def about(published: Published, system: str, item: str, table: str) -> dict[str, Any]:
    """The text that every page of a published table shows about it."""
    reference = published.references.of_paper(system)
    return {
        "links": reference[1].links if reference else [],
        "system": published.systems.get(system)
        or System.model_validate(
            {
                "system": system,
                "name": system,
                "title": system,
                "changes": "",
                "paper": "",
                "spread": {"over": "none", "source": "no paper"},
            }
        ),
        "item": item,
        "label": label_of(item, table),
        "caption": published.captions.get((system, item)),
        "notes": published.notes.get((system, split_part(item)[0]), ()),
        "claims": [
            {"claim": claim, "printed": judge_printed(claim, pairs_of(claim, published), spread)}
            for claim in published.claims_on(system, item)
            for spread in (published.systems[system].spread,)
        ],
        "discrepancies": published.discrepancies(system, item),
    }
