"""The page of a method, wrapper or server optimizer."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.league import BASELINE, BASELINE_LABEL, PlayedMatch
from fedrepro.report.pages.equations import (
    SYMBOLS,
    equations_in,
    is_equation,
    symbols_in,
    without_equations,
)
from fedrepro.report.papers.references import Reference
from fedrepro.support.names import Composition

PAPER = re.compile(r'^The paper is "[^"]*"(?: \([^)]*\))?[.;:]?\s*')
KINDS = ("method", "wrapper", "server optimizer", "pre-training")


@dataclass(frozen=True)
class MethodText:
    """A method's description, read without importing the method.

    Attributes:
        facts: name, kind, paper, hyperparameters, hooks, divergences, as
            :func:`fedrepro.methods.registry.describe` gives them.
        documentation: the docstring of its module.
        source: its file's text.
        file: its file's name.
        hooks: the code of each hook that it overrides, by name.
        meanings: of its hyperparameters, by name.
    """

    facts: Mapping[str, Any]
    documentation: str
    source: str
    file: str
    hooks: Mapping[str, str]
    meanings: Mapping[str, str]


@dataclass(frozen=True)
class InLeague:
    """A part of compositions at scale compact, in columns with it alone or around FedAvg.

    Attributes:
        stands: the matches with FedAvg, each with its column, lead and rank (of how many).
        labels: of its columns, each once.
        left_out: the labels of columns without a rank, and why, as the league says it.
    """

    stands: list[SimpleNamespace] = field(default_factory=list)
    labels: dict[str, None] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def in_league(workbench: Workbench, played: Iterable[PlayedMatch]) -> dict[str, InLeague]:
    """The standing of each part of a composition that has any."""
    standings: defaultdict[str, InLeague] = defaultdict(InLeague)
    for match in played:
        table = workbench.experiments[match.match.system].compact[match.match.item]
        setting = workbench.setting(match.match.setting)
        for column in table.columns:
            names, label = column.methods_at("compact"), column.label
            composition, _ = workbench.composition_of(setting, names[0])
            parts = [name for name in Composition.parse(composition).names if name != "fedavg"]
            if len(names) > 1 or len(parts) != 1:
                continue
            standing = standings[parts[0]]
            standing.labels[label] = None
            if why := match.left_out.get(label):
                standing.left_out[label] = why
            name = next((entry.name for entry in match.entries if entry.column == label), label)
            lead = match.lead(name, BASELINE_LABEL)
            if lead and name in match.ranks:
                rank, of = match.ranks[name], len(match.ranks)
                standing.stands.append(
                    SimpleNamespace(match=match.match, column=label, lead=lead, rank=rank, of=of)
                )
    return dict(standings)


def method_page(
    method: MethodText,
    uses: Sequence[Mapping[str, str]],
    reference: Reference | None,
    standing: InLeague,
    compared: Mapping[str, str],
) -> dict[str, Any]:
    """The content of a method's page.

    Args:
        uses: the tables and figures with this method.
        compared: by the label of a column, the page that compares it with others.
    """
    paragraphs = method.documentation.split("\n\n")
    prose = without_equations(method.documentation)
    title, *rest = [text for text in prose if not text.startswith("http")]
    # The reference has the paper's title; what follows it is what differs.
    rest = [left for text in rest if (left := PAPER.sub("", text))]
    return {
        **vars(method),
        "reference": reference,
        "title": title,
        "equations": [equations_in(text) for text in paragraphs if is_equation(text)],
        "symbols": [symbols_in(text) for text in paragraphs if text.startswith(SYMBOLS)],
        "difference": rest[0] if rest else "",
        "paragraphs": rest[1:],
        "stands": sorted(standing.stands, key=lambda stand: -stand.lead.lead),
        "compared": {name: compared[name] for name in standing.labels if name in compared},
        "left_out": standing.left_out,
        "is_baseline": method.facts["name"] == BASELINE,
        "uses": uses,
    }


def by_kind(methods: Sequence[MethodText]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """The facts of all methods, wrappers and server optimizers."""
    facts = [method.facts for method in methods]
    return [(kind, [method for method in facts if method["kind"] == kind]) for kind in KINDS]
