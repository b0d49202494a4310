"""Announce what a run takes on disk before it starts, and remove what is needed no more.

Only states that are made again when needed are removed, never a result: what a parent run kept for
child runs, and checkpoints that were moved aside because no run of today continues them. A file
that neither a record lists nor a run writes there is someone's own.
"""

import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

from fedrepro.config.partition_sizes import cohort_size
from fedrepro.config.run_spec import RunSpec
from fedrepro.data.dataset import Dataset
from fedrepro.models import registry as models
from fedrepro.run.assembly import method_of
from fedrepro.run.checkpoint import ABOUT, ASIDE, CLIENTS, about_of, is_as_left
from fedrepro.run.shared_prefix import KEPT
from fedrepro.support.errors import refusal
from fedrepro.support.files import all_below


def space_for_models(spec: RunSpec, dataset: Dataset, clients: int, folder: Path) -> str:
    """The size of the models that ``save_models_at`` asks for, in words; "" for none.

    Of each round they are those of its clients and the server's.

    Raises:
        UserError: if there is not enough space on the disk of ``folder``.
    """
    rounds = set(spec.setting.save_models_at.get(spec.method, ()))
    if not rounds:
        return ""
    method, _ = method_of(spec)
    outputs = method.outputs or dataset.outputs
    model = models.outline(spec.setting.model, dataset.shapes, outputs, spec.plugins)
    leaves = [*model.parameters(), *model.buffers()]
    size = sum(leaf.numel() * leaf.element_size() for leaf in leaves if leaf.is_floating_point())
    kept = len(rounds) * (cohort_size(spec.setting, clients) + 1)
    free = shutil.disk_usage(folder).free
    words = (
        f"keeps {kept} models of {size / 1e6:.1f} MB, of {len(rounds)} rounds: "
        f"{kept * size / 1e6:,.0f} MB, with {free / 1e6:,.0f} MB free"
    )
    if kept * size > free:
        why = f"{words}: free disk space, or list fewer rounds in `save_models_at`"
        raise refusal(spec.key.words, why, "save_models_at", sorted(rounds))
    return words


DAY = 86400.0  # seconds


@dataclass(frozen=True)
class Removable:
    """A folder that can go.

    Attributes:
        what: it is, in words.
        files: in it that fedrepro wrote.
        days: since the newest of all its files was written.
    """

    folder: Path
    what: str
    files: tuple[Path, ...]
    days: float

    @property
    def size(self) -> int:
        """In bytes; a file that is also elsewhere, as a hard link, frees none."""
        sizes = 0
        for file in self.files:
            with suppress(FileNotFoundError):  # another process has removed it
                facts = file.stat()
                sizes += facts.st_size * (facts.st_nlink == 1)
        return sizes

    def remove(self) -> None:
        """Remove its files, and the folders that are then empty."""
        for file in self.files:
            file.unlink(missing_ok=True)
        within = {file.parent for file in self.files}
        for folder in [*within, self.folder, *list(self.folder.parents)[:3]]:
            with suppress(OSError):  # someone's own file is in it
                folder.rmdir()


def removable(root: Path, days: float) -> Iterator[Removable]:
    """The folders that were last written at least so many days ago and can go."""
    kept = sorted((root / KEPT).glob(f"*/*/*/seed*/round*/{ABOUT}"))
    for folder in (file.parent for file in kept):
        listed = [Path(name) for name in about_of(folder).get("files", {})]
        ours = (name for name in listed if name.parts[:-1] in ((), (CLIENTS,)))
        files = (folder / ABOUT, *(folder / name for name in ours)) if listed else ()
        yield from _old(folder, "a parent run's state for child runs", files, days)
    for folder in sorted((root / "results/runs").glob(f"*/*/*/seed*{ASIDE}*")):
        files = tuple(Path(path) for path, facts in all_below(folder) if S_ISREG(facts.st_mode))
        if is_as_left(folder):
            yield from _old(folder, "a checkpoint that no run of today continues", files, days)


def _old(folder: Path, what: str, files: tuple[Path, ...], days: float) -> Iterator[Removable]:
    there = tuple(file for file in files if file.is_file() and not file.is_symlink())
    times = (facts.st_mtime for _, facts in all_below(folder) if S_ISREG(facts.st_mode))
    newest = max(times, default=0)
    age = (time.time() - newest) / DAY
    if there and age >= days:
        yield Removable(folder, what, there, age)


def sizes(results: Path) -> dict[str, int]:
    """The bytes below each folder of ``results``, a file with several names once; largest first."""
    bytes_of: dict[str, int] = {}
    seen: set[tuple[int, int]] = set()
    for folder in sorted(path for path in results.glob("*") if path.is_dir()):
        for _, facts in all_below(folder):
            if (facts.st_dev, facts.st_ino) not in seen:
                seen.add((facts.st_dev, facts.st_ino))
                bytes_of[folder.name] = bytes_of.get(folder.name, 0) + facts.st_size
    return dict(sorted(bytes_of.items(), key=lambda item: -item[1]))
