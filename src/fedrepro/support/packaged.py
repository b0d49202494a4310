"""What comes with the package but is no code of it: rules, templates, experiments, printed numbers.

In a clone these stand at its root; pyproject.toml puts them into the wheel, under ``assets``. What
a workbench has of its own comes first.
"""

from pathlib import Path

PACKAGE = Path(__file__).parents[1]
ASSETS = PACKAGE / "assets"
ORIGIN = ASSETS if ASSETS.is_dir() else PACKAGE.parents[1]


def own_or_packaged(root: Path, path: Path) -> Path:
    """``path`` in the workbench at ``root``, or that of the package where it has none."""
    own = root / path
    return own if own.exists() else ORIGIN / path
