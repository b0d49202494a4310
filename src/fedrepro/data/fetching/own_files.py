"""Find files that the user must supply."""

from pathlib import Path

from fedrepro.data.catalogue.entries import Own
from fedrepro.support.errors import UserError


def own_places(given: str, archives: Path | None) -> list[Path]:
    """The places to look for an entry's `path`."""
    return [Path(given), *([archives / Path(given).name] if archives else [])]


def find_own(given: str, archives: Path | None) -> Path | None:
    """The first of these places that exists, or None.

    Raises:
        UserError: if it is no file or folder: reading a named pipe would wait for ever.
    """
    path = next((path for path in own_places(given, archives) if path.exists()), None)
    if path is not None and not (path.is_file() or path.is_dir()):
        raise UserError(f"{path}: can't be read: it is neither a file nor a folder")
    return path


def files_of(path: Path) -> list[Path]:
    """All files in a folder, sorted; for a file, the file itself."""
    return sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]


def state_of_own(spec: Own, archives: Path | None) -> list[tuple[str, int, int]]:
    """Name, size and modification time (ns) of each file that the user supplies, if any exist.

    The workflow uses this to detect changes; it is quick because it reads no file.
    """
    path = find_own(spec.path, archives)
    if path is None:
        return []
    return [(str(each), (at := each.stat()).st_size, at.st_mtime_ns) for each in files_of(path)]
