"""The page of a method, wrapper or server optimizer."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedrepro.report.papers.references import Reference

KINDS = ("method", "wrapper", "server optimizer")


@dataclass(frozen=True)
class MethodText:
    """A method's description, read without importing the method.

    Attributes:
        facts: name, kind, paper, hyperparameters, hooks, divergences, as
            :func:`fedrepro.methods.registry.describe` gives them.
        documentation: the docstring of its module.
        source: its file's text.
        file: its file's name.
    """

    facts: Mapping[str, Any]
    documentation: str
    source: str
    file: str


def method_page(
    method: MethodText, uses: Sequence[Mapping[str, str]], reference: Reference | None
) -> dict[str, Any]:
    """The content of a method's page; ``uses`` lists the tables and figures with this method."""
    return {
        "reference": reference,
        "facts": method.facts,
        "paragraphs": method.documentation.split("\n\n"),
        "comments": {
            name: _comment_on(method.source, name) for name in method.facts["hyperparameters"]
        },
        "source": method.source,
        "file": method.file,
        "uses": uses,
    }


def by_kind(methods: Sequence[MethodText]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """The facts of all methods, wrappers and server optimizers."""
    facts = [method.facts for method in methods]
    return [(kind, [each for each in facts if each["kind"] == kind]) for kind in KINDS]


def _comment_on(source: str, field: str) -> str:
    """The comment on a hyperparameter's line: its meaning, or its symbol in the paper."""
    found = re.search(rf"^    {re.escape(field)}\s*:[^#\n]*#\s*(.+)$", source, re.MULTILINE)
    return found[1].strip() if found else ""
