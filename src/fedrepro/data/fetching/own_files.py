"""Where files are that are nobody's to fetch, if they are there."""

from pathlib import Path

from fedrepro.data.catalogue.entries import Own


def own_places(given: str, archives: Path | None) -> list[Path]:
    """Where what an entry's `path` names is looked for."""
    return [Path(given), *([archives / Path(given).name] if archives else [])]


def find_own(given: str, archives: Path | None) -> Path | None:
    """The first of these places where there is something."""
    return next((path for path in own_places(given, archives) if path.exists()), None)


def files_of(path: Path) -> list[Path]:
    """All files of a folder, sorted; of a file itself."""
    return sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]


def state_of_own(spec: Own, archives: Path | None) -> list[tuple[str, int, int]]:
    """Name, size and time of change (ns) of each of a user's own files, if they are there.

    Quick, as nothing is read: the workflow asks for it to see whether they have changed.
    """
    path = find_own(spec.path, archives)
    if path is None:
        return []
    return [(str(each), (at := each.stat()).st_size, at.st_mtime_ns) for each in files_of(path)]
