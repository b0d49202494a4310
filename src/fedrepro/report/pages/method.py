"""The page of a method, wrapper or server optimizer."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.matches import BASELINE, BASELINE_LABEL, Match, Played
from fedrepro.report.pages.equations import (
    SYMBOLS,
    equations_in,
    is_equation,
    symbols_in,
    without_equations,
)
from fedrepro.report.papers.leads import PairedTest
from fedrepro.report.papers.references import Reference

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
class Stand:
    """A method in a setting of scale compact: its lead over FedAvg, and its rank of how many."""

    match: Match
    column: str
    lead: PairedTest
    rank: float
    of: int


def stands_of(
    workbench: Workbench, played: Iterable[Played]
) -> tuple[dict[str, list[Stand]], dict[str, list[str]], dict[str, dict[str, str]]]:
    """By part of a composition: where it stands beside FedAvg, and the labels of its columns.

    Also the columns that have no rank, and why, as the league says it.

    Only columns with the part alone, or the part around FedAvg, count.
    """
    stands: dict[str, list[Stand]] = {}
    labels: dict[str, list[str]] = {}
    left_out: dict[str, dict[str, str]] = {}
    for each in played:
        table = workbench.experiments[each.match.system].compact[each.match.item]
        setting = workbench.setting(each.match.setting)
        for column in table.columns:
            names = column.methods_at("compact")
            composition, _ = workbench.compose(setting, names[0])
            parts = [part.partition("@")[0] for part in composition.split("+") if part != "fedavg"]
            if len(names) > 1 or len(parts) != 1:
                continue
            if column.label not in labels.setdefault(parts[0], []):
                labels[parts[0]].append(column.label)
            if why := each.left_out.get(column.label):
                left_out.setdefault(parts[0], {})[column.label] = why
            lead = each.lead(column.label, BASELINE_LABEL)
            if lead and column.label in each.ranks:
                rank, of = each.ranks[column.label], len(each.ranks)
                stands.setdefault(parts[0], []).append(
                    Stand(each.match, column.label, lead, rank, of)
                )
    return stands, labels, left_out


def method_page(
    method: MethodText,
    uses: Sequence[Mapping[str, str]],
    reference: Reference | None,
    stands: Sequence[Stand] = (),
    compared: Mapping[str, str] = MappingProxyType({}),
    left_out: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """The content of a method's page.

    Args:
        uses: the tables and figures with this method.
        stands: where it leads and trails at scale compact.
        compared: the labels of its columns, with the pages that compare them with others.
        left_out: the labels of its columns without a rank, and why.
    """
    paragraphs = method.documentation.split("\n\n")
    said = without_equations(method.documentation)
    title, *rest = [text for text in said if not text.startswith("http")]
    # The reference has the paper's title; what follows it is what differs.
    rest = [left for text in rest if (left := PAPER.sub("", text))]
    return {
        "reference": reference,
        "facts": method.facts,
        "title": title,
        "equations": [equations_in(text) for text in paragraphs if is_equation(text)],
        "symbols": [symbols_in(text) for text in paragraphs if text.startswith(SYMBOLS)],
        "difference": rest[0] if rest else "",
        "paragraphs": rest[1:],
        "hooks": method.hooks,
        "stands": sorted(stands, key=lambda each: -each.lead.lead),
        "compared": compared,
        "left_out": left_out,
        "is_baseline": method.facts["name"] == BASELINE,
        "meanings": method.meanings,
        "source": method.source,
        "file": method.file,
        "uses": uses,
    }


def by_kind(methods: Sequence[MethodText]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """The facts of all methods, wrappers and server optimizers."""
    facts = [method.facts for method in methods]
    return [(kind, [each for each in facts if each["kind"] == kind]) for kind in KINDS]
