"""Files of the package that are not code: rules, templates, experiments, printed numbers.

In a clone they are at its root; pyproject.toml adds them to the wheel, under ``assets``. A
workbench's own files take precedence.
"""

from pathlib import Path

PACKAGE = Path(__file__).parents[1]
ASSETS = PACKAGE / "assets"
CONFIG = Path("config/config.yaml")  # every workbench has it
ORIGIN = ASSETS if ASSETS.is_dir() else PACKAGE.parents[1]


def own_or_packaged(root: Path, path: Path) -> Path:
    """``path`` in the workbench at ``root`` if it exists there, else in the package."""
    own = root / path
    return own if own.exists() else ORIGIN / path


def is_distribution(root: Path) -> bool:
    """Whether a folder is that of a wheel or sdist, which have no reference results."""
    return root.resolve() == ASSETS.resolve() or (root / "PKG-INFO").is_file()
