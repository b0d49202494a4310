"""The paper of docs/another_paper.md, in a workbench of its own."""

import re
from pathlib import Path

from fedrepro.cli.main import main
from support.places import ROOT

PAPER = "reports/papers/mcmahan"
FILES = {  # in the order of the page's blocks
    "cells": f"{PAPER}/cells.csv",
    "paper": f"{PAPER}/paper.yaml",
    "caption": f"{PAPER}/captions/table_1.md",
    "experiment": "config/experiments/mcmahan.yaml",
    "discrepancies": f"{PAPER}/discrepancies.yaml",
    "claims": f"{PAPER}/claims.yaml",
    "compact": "config/compact/mcmahan.yaml",
}


def settle(folder: Path) -> Path:
    """A workbench in ``folder`` with the paper as the page has it."""
    root = folder / "bench"
    assert main(["init", str(root), "--paper", "mcmahan"]) == 0
    text = (ROOT / "docs/another_paper.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(?:csv|yaml|markdown)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for file, block in zip(FILES.values(), blocks, strict=True):
        assert file in text and (root / file).exists(), file  # init has written it
        (root / file).write_text(block, encoding="utf-8")
    return root
