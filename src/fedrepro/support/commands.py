"""The commands as ``commands.yaml`` describes them: those of ``cli``, and those of papers."""

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from fedrepro.support import papers

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def described() -> list[dict[str, Any]]:
    """The content of each file, that of ``cli`` first."""
    files = (Path(__file__).parents[1] / "cli/commands.yaml", *papers.command_files())
    return [yaml.load(file.read_text(encoding="utf-8"), LOADER) for file in files]


def written() -> list[str]:
    """The paths that commands write, as their key ``writes`` has them."""
    entries = (entry for content in described() for entry in content["commands"].values())
    return [entry["writes"] for entry in entries if "writes" in entry]


def function(name: str) -> Any:
    """The function that an entry names, such as ``cli.run:handle``."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(f"fedrepro.{module}"), attribute)
