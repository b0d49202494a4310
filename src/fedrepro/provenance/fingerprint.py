"""Hashes of everything that defines the result of a run or a report.

Code is fingerprinted by its syntax tree: comments, formatting, docstrings and the text of raised
errors do not count. A fingerprint covers given modules and everything that they import from this
package, directly or not, except the modules listed here with a reason. Nothing is imported to
compute it.

A run's code is everything that can change its numbers: ``run/assembly.py`` (what is trained),
``run/scoring.py`` (what is recorded), its model's module, its methods' files, and what they import.
They do not import the code that carries out or describes a run: runner, checkpoint, manifest.
"""

import ast
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any

from fedrepro.config.run_spec import RunSpec
from fedrepro.config.settings import Setting
from fedrepro.measures import registry as measures
from fedrepro.methods.files import module_files
from fedrepro.models import registry as models
from fedrepro.provenance.syntax import syntax_of
from fedrepro.support import checkout, papers, plugins
from fedrepro.support.files import files_below, sha256_of
from fedrepro.support.packaged import CONFIG
from fedrepro.support.plugins import parse

PLUGINS = "plugins"
LONGEST_PATH = 250  # characters of a text in code that may name a file
# Plug-ins whose files count in a run's code.
KINDS: tuple[plugins.Kind, ...] = ("methods", "models", "measures", "losses")
PACKAGE = Path(__file__).parents[1]

# Modules, and folders of them, that never count. Not all of support: rng affects every number.
HANDLING = (  # texts, files, checks
    "methods/facts",  # its findings are in runs' descriptions and pages
    "support/errors",
    "support/files",
    "support/locks",
    "support/papers",
    "support/checksummed_json",
    "support/terminal",
    "support/typed_yaml",
)
OUTSIDE_A_RUN = (
    *HANDLING,
    "config",  # its values are in the run's description
    "data/catalogue",  # data, partition and learned weights count by the SHA-256 of their content
    "data/dataset",
    "data/fetching",
    "data/partition",
    "measures/base",  # declarations; a plug-in measure counts if a setting names it
    "measures/built_in",
    "measures/registry",
    "methods/files",  # finds files by name; the run's own method and model files are start points
    "methods/registry",
    "models/registry",  # the model's entry counts
    "provenance",  # its results are in the manifest
    "run/store",  # checkpoints have a layout with a version
    "support/plugins",  # finds files by name
)
# An analysis opens a run; it is repeated when the run's files have changed.
OUTSIDE_AN_ANALYSIS = (
    *OUTSIDE_A_RUN,
    "run/assembly",
    "run/input_artifacts",
    "run/results",
    "run/runner",
)
# The effect of these is in the files of runs and partitions, from which pages are made; the last
# says whether those are of today.
OUTSIDE_A_PAGE = (*HANDLING, "models", "data/dataset", "run/standing")


def of_code(spec: RunSpec) -> str:
    """The fingerprint of the code that a run's numbers come from."""
    entry = models.find(spec.setting.model, spec.plugins)
    layout = " channels_last" if entry.channels_last else ""
    code = _of_run(code_of_spec(spec))
    return of_text(f"{code} {entry.module} {entry.function} {entry.family}{layout}")


@cache  # every run of a table asks
def _of_run(starts: tuple[Path, ...]) -> str:
    return of_closure(starts, OUTSIDE_A_RUN)


def files_of_code(spec: RunSpec) -> dict[str, str]:
    """The digest of each file that counts in :func:`of_code`, by a portable name.

    Names are relative to the package, those of plug-ins are like ``plugins/methods/x.py``. A model
    given as an object has no file.
    """
    files = {
        _named(path, spec.plugins): path for path in closure(code_of_spec(spec), OUTSIDE_A_RUN)
    }
    return {name: syntax_of(path).digest for name, path in sorted(files.items())}


def code_of_spec(spec: RunSpec) -> tuple[Path, ...]:
    """The files from which the search for a run's code starts.

    A model given as an object has none.
    """
    model, folders = spec.setting.model, spec.plugins
    module = () if models.find(model, folders).make else (models.module_file(model, folders),)
    around = code_around_model(spec.composition, folders)
    return (*around, *module, *code_of_setting(spec.setting), *scored_by(spec).values())


def file_of_code(name: str, folders: plugins.Folders) -> tuple[Path, str] | None:
    """The folder that contains a file named by :func:`files_of_code`, and its path in the folder.

    None for a file of a plug-in folder that does not exist.
    """
    kind = next((kind for kind in KINDS if name.startswith(f"{PLUGINS}/{kind}/")), None)
    if kind is None:
        return PACKAGE, name
    folder = folders.of(kind)
    return (folder, name.removeprefix(f"{PLUGINS}/{kind}/")) if folder else None


def checkouts_of(files: Iterable[str], folders: plugins.Folders) -> dict[str, Any]:
    """The git state of the folders that contain files named as in :func:`files_of_code`.

    Returns:
        By ``fedrepro`` and, if there are such files, ``plugins/methods`` and so on: commit and
        whether the folder's code differs from it (:mod:`fedrepro.support.checkout`), or None.
    """
    states: dict[str, Any] = {PACKAGE.name: checkout.of_package()}
    for kind in KINDS:
        folder = folders.of(kind)
        if folder and any(name.startswith(f"{PLUGINS}/{kind}/") for name in files):
            states[f"{PLUGINS}/{kind}"] = checkout.of_folder(folder.absolute())
    return states


def _named(path: Path, folders: plugins.Folders) -> str:
    for kind in KINDS:
        folder = folders.of(kind)
        if folder is not None and path.is_relative_to(folder):
            return f"{PLUGINS}/{kind}/{path.relative_to(folder).as_posix()}"
    return _shown(path)


def code_of_setting(setting: Setting) -> tuple[Path, ...]:
    """The files of papers' packages that a setting uses."""
    changing = [papers.files_of("given")[key] for key in setting.keys_of_papers]
    stream = [setting.cohorts.stream] if setting.cohorts else []
    return (*changing, *(papers.files_of("cohorts")[name] for name in stream))


def scored_by(spec: RunSpec) -> dict[str, Path]:
    """The files of plug-in measures and of the loss that a run's setting names, by part."""
    setting, losses = spec.setting, spec.plugins.files("losses")
    named = measures.files_of(setting.evaluate.measures, spec.plugins)
    loss = {f"loss {setting.loss}": losses[setting.loss]} if setting.loss in losses else {}
    return {f"measure {file.stem}": file for file in named} | loss


def code_around_model(
    composition: str, folders: plugins.Folders = plugins.NONE
) -> tuple[Path, ...]:
    """The files from which the search for a run's code starts, but for its model and setting."""
    return (*core_files(), *module_files(composition, folders))


def core_files() -> tuple[Path, ...]:
    """Those of them that every run has."""
    return tuple(map(module_path, ("fedrepro.run.assembly", "fedrepro.run.scoring")))


# Of files that plug-ins import: code today -> the code that gave the same numbers in older results.
# Whoever edits such a file has to change its key here; tests/workflow/test_upgrade.py notices.
SAME = {
    # models/classifier.py: a body may have several inputs
    "32261d6e3fd1328674b6d0520e0599df8301b0b15edef1b9ef82880330fa9b90": (
        "19f33b4409ec3c693e77f4af7b09da95251a06a4605177418dabdd0d24804f0b"
    ),
    # measures/base.py: `in_rounds`, `quantity` and its fields, `remark`, words, refusals, a mixture
    "6f0bf42cba4c1b581dbf3ffc7a25653789a5b9c065d75f0b6e4565e59d81c5fb": (
        "c900e618f8d28a0d197c8e9d8c33815a9d9d0c388a6209ccff55bd9efc93ca59"
    ),
}


def of_closure(
    starts: Iterable[Path],
    outside: tuple[str, ...] = (),
    same: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """The fingerprint of some files and everything that they import from this package.

    Args:
        same: digests of files by what stands for them, such as :data:`SAME`.
    """
    files = closure(starts, outside)
    digests = ((path, syntax_of(path).digest) for path in files)
    lines = [f"{_shown(path)} {same.get(digest, digest)}" for path, digest in digests]
    lines += [f"{path.name} {digest}" for path, digest in files_read_by(files).items()]
    return of_text("\n".join(sorted(lines)))


def of_files(paths: Iterable[Path]) -> str:
    """The hash of the names and bytes of files, and of all files in folders.

    It does not depend on where the package or an absolute path is.
    """
    files = sorted(
        (_placed(file, path), file)
        for path in paths
        for file in (files_below(path) if path.is_dir() else [path])
        if file.is_file()
    )
    lines = (f"{name.as_posix()} {sha256_of(file)}" for name, file in files)
    return of_text("\n".join(lines))


def _placed(file: Path, given: Path) -> PurePath:
    """A file's name in a hash: a relative path as it is, an absolute one without its place."""
    if not file.is_absolute():
        return file
    return file.relative_to(PACKAGE if file.is_relative_to(PACKAGE) else given.parent)


def of_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def closure(starts: Iterable[Path], outside: tuple[str, ...] = ()) -> set[Path]:
    """Files, and everything that they import from this package, directly or not.

    ``__init__`` files contain only a docstring and are left out. Of a plug-in, what it imports from
    below the workbench counts as well.

    Args:
        outside: modules, and folders of them, at which the search ends, such as ``support/files``.
    """
    files: set[Path] = set()
    waiting = list(starts)
    while waiting:
        path = waiting.pop()
        if path not in files and not _is_inside(path, outside):
            files.add(path)
            waiting.extend(_imported(path))
    return files


@cache  # for the same few files, in each of hundreds of fingerprints
def _is_inside(path: Path, modules: tuple[str, ...]) -> bool:
    if not path.is_relative_to(PACKAGE):  # a plug-in
        return False
    name = path.relative_to(PACKAGE).with_suffix("").as_posix()
    return any(name == module or name.startswith(f"{module}/") for module in modules)


def module_path(name: str) -> Path:
    """The file of a module of this package.

    Raises:
        ModuleNotFoundError: if there is none.
    """
    path = _find(name)
    if path is None:
        raise ModuleNotFoundError(name)
    return path


def _find(name: str) -> Path | None:
    first, *rest = name.split(".")
    if first != PACKAGE.name or not rest:
        return None
    path = Path(f"{PACKAGE.joinpath(*rest)}.py")
    return path if path.is_file() else None


@cache
def _shown(path: Path) -> str:
    """A name that is the same on every machine."""
    return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else path.name


@cache
def _imported(path: Path) -> tuple[Path, ...]:
    """The files that count of those that a file's import statements, at any depth, load."""
    ours = {file for name in _imported_names(path) if (file := _find(name))}
    return tuple(sorted(ours | ({*_helpers(path)} if is_plugin(path) else set())))


def is_plugin(path: Path) -> bool:
    """True for a file of a plug-in or one that it imports, which are outside this package."""
    return not path.is_relative_to(PACKAGE)


def _helpers(path: Path) -> Iterator[Path]:
    """The files of the workbench, none of this package, that a plug-in's imports may load."""
    for level, name in syntax_of(path).names:
        if not level and name.partition(".")[0] == PACKAGE.name:
            continue
        folders = [path.absolute().parents[level - 1]] if level else _import_folders(path)
        for folder in folders:
            base = folder.joinpath(*name.split(".")) if name else folder
            places = (Path(f"{base}.py"), base / "__init__.py")
            if file := next((each for each in places if each.is_file()), None):
                yield file
                break


def packages_imported_by(code: Iterable[Path]) -> set[Path]:
    """The ``__init__`` files of this package that plug-ins' import statements name.

    Until 27 November 2026 they counted as helpers where the clone was the current folder.
    """
    names = {name for path in code if is_plugin(path) for level, name in syntax_of(path).names}
    ours = (name.split(".")[1:] for name in names if name.split(".")[0] == PACKAGE.name)
    files = (PACKAGE.joinpath(*inner, "__init__.py") for inner in ours)
    return {file for file in files if file.is_file()}


def _import_folders(path: Path) -> Iterator[Path]:
    """The folders from which a plug-in may import: those of :func:`_places`, and `sys.path`."""
    root = _workbench_of(path)
    yield from _places(path)[0]
    for each in (Path(entry).absolute() for entry in sys.path):
        if each.is_relative_to(root) and not each.is_relative_to(sys.prefix):  # installed packages
            yield each


def _workbench_of(path: Path) -> Path:
    """The workbench that a plug-in is in, wherever it is asked about.

    For one in a folder elsewhere, the current folder: commands work in the workbench that uses it.
    """
    above = path.absolute().parents
    return next((folder for folder in above if (folder / CONFIG).is_file()), None) or Path.cwd()


def files_read_by(code: Iterable[Path]) -> dict[Path, str]:
    """The SHA-256 of each file of the workbench that plug-ins' code names in a text.

    A method may read a table of weights; like its code, it determines the numbers.
    """
    named = {file for path in code if is_plugin(path) for file in _places(path)[1]}
    return {file: sha256_of(file) for file in sorted(named)}


@cache
def _places(path: Path) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """The folders of the workbench to which a plug-in's code may refer, and the files it names.

    The folders are its own, those above, and those that it names in texts: files are sought in
    each, so that the file of ``folder / "tables" / "weights.json"`` is one.
    """
    constants = (node.value for node in ast.walk(parse(path)) if isinstance(node, ast.Constant))
    texts = {each for each in constants if isinstance(each, str) and each.isprintable()}
    names = sorted(text for text in texts if 0 < len(text) <= LONGEST_PATH)
    root, (own, *above) = _workbench_of(path), path.absolute().parents
    folders = list(
        dict.fromkeys([own, *(each for each in above if each.is_relative_to(root)), root])
    )
    known, files = set(map(os.path.realpath, folders)), set[Path]()
    # A plug-in may be a link to a file, which finds what is beside itself by `resolve()`.
    if str(linked := path.resolve().parent) not in known:
        known.add(str(linked))
        folders.append(linked)
    for folder in folders:  # which grows
        for place in (Path(os.path.normpath(folder / name)) for name in names):
            if not any(map(place.is_relative_to, (root, own, linked))):
                continue
            if os.path.isfile(place):  # noqa: PTH113 - pathlib raises for a long name
                files.add(place)
            elif os.path.isdir(place) and os.path.realpath(place) not in known:  # noqa: PTH112
                known.add(os.path.realpath(place))
                folders.append(place)
    return tuple(folders), tuple(files - {path.absolute()})


def _imported_names(path: Path) -> Iterator[str]:
    for level, name in syntax_of(path).names:
        if level and path.is_relative_to(PACKAGE):
            above = (PACKAGE.name, *path.relative_to(PACKAGE).parts)[:-level]
            yield ".".join([*above, *([name] if name else [])])
        else:
            yield name
