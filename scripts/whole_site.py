"""Make .site, the whole site from committed results (`make site`): nothing is trained.

It is rendered in an empty folder with links to the committed files. So it is the same on every
machine, and results/ and reports/site of this one stay as they are. With names of workbenches, such
as examples/scaffold, their sites are made instead, in .examples (`make examples`).
"""

import shutil
import sys
import tempfile
from pathlib import Path

from fedrepro.cli.site import described_methods
from fedrepro.config.loading import load
from fedrepro.report import site
from fedrepro.report.papers import published

ROOT = Path(__file__).resolve().parents[1]
MADE, EXAMPLES = ROOT / ".site", ROOT / ".examples"
COMMITTED = ("config", "reports/papers", "reports/templates")
FOLDERS = ("methods", "models", "partitions", "measures")  # a workbench's own files


def with_committed_files(folder: Path, source: Path = ROOT) -> Path:
    """Make ``folder`` a workbench that has no results but the committed ones of ``source``."""
    own = () if source == ROOT else FOLDERS
    for name in (*COMMITTED, *own):
        if (source / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to(source / name)
    return folder


def write_site(folder: Path, source: Path = ROOT) -> Path:
    """Render the site of ``source`` in an empty folder; its start page's path."""
    workbench = load(with_committed_files(folder, source))
    papers, methods = published.load(folder), described_methods(workbench.plugins)
    return folder / site.write_whole_site(workbench, papers, methods, "compact")


def write_example(source: Path, target: Path) -> None:
    """Write the site of another workbench to a folder that is not there yet."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(write_site(Path(folder), source).parent, target)


def main(examples: list[str]) -> None:
    shutil.rmtree(EXAMPLES if examples else MADE, ignore_errors=True)
    for name in examples:
        source = (ROOT / name).resolve()
        write_example(source, EXAMPLES / source.name)
        print(f".examples/{source.name}/index.html", file=sys.stderr)
    if not examples:
        print(write_site(MADE).relative_to(ROOT), file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
