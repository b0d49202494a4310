"""Make .site, the whole site from committed results (`make site`): nothing is trained.

It is rendered in an empty folder with links to the committed files. So it is the same on every
machine, and results/ and reports/site of this one stay as they are.
"""

import shutil
import sys
from pathlib import Path

from fedrepro.cli.site import described_methods
from fedrepro.config.loading import load
from fedrepro.report import site
from fedrepro.report.papers import published

ROOT = Path(__file__).resolve().parents[1]
MADE = ROOT / ".site"
COMMITTED = ("config", "reports/papers", "reports/templates")


def with_committed_files(folder: Path) -> Path:
    """Make ``folder`` a workbench that has no results but the committed ones."""
    for name in COMMITTED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(ROOT / name)
    return folder


def write_site(folder: Path) -> Path:
    """Render the site in an empty folder; its start page's path."""
    workbench = load(with_committed_files(folder))
    papers, methods = published.load(folder), described_methods(workbench.plugins)
    return folder / site.write_whole_site(workbench, papers, methods, "compact")


def main() -> None:
    shutil.rmtree(MADE, ignore_errors=True)
    print(write_site(MADE).relative_to(ROOT), file=sys.stderr)


if __name__ == "__main__":
    main()
