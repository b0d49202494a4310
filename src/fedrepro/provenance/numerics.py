"""Numerics ids: which code gives the same numbers, whatever way it is written.

The fingerprint of parsed code (:mod:`fedrepro.provenance.fingerprint`) changes with every
refactoring. The file next to this module therefore maps each part's fingerprint to a *numerics id*:
the fingerprint of the first code with the same numbers. `make bless` writes the file after it has
played the same small runs with the old and the new code and compared every bit. Code that is not
blessed has its
fingerprint as its id, so that its results are never taken for those of other code.

A run's parts are the core (training and recording), each part of its method, its model, and the
code of a paper's package that its setting uses.
"""

import ast
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

import fedrepro
from fedrepro.config.run_spec import RunSpec
from fedrepro.methods.files import part_files
from fedrepro.models import registry as models
from fedrepro.provenance import fingerprint
from fedrepro.provenance.fingerprint import is_plugin
from fedrepro.provenance.syntax import syntax_of
from fedrepro.support import papers, plugins
from fedrepro.support.errors import refusal
from fedrepro.support.names import Composition
from fedrepro.support.plugins import NONE as NONE_OF_ITS_OWN
from fedrepro.support.plugins import Folders, parse

FILE = Path(__file__).with_name("numerics.json")
CORE = "core"
PARTITION = "partition"
LAYERS = "layers "  # before a model's name, of what all seeds share of it
DIGITS = 16  # of a fingerprint, enough to tell any two apart

# A part that was renamed keeps its id: former name -> name, also in what finished runs recorded.
RENAMED: Mapping[str, str] = MappingProxyType({})

# Of the plug-ins whose code this process has read: id -> its ids by former rules.
FORMER: dict[str, tuple[str, ...]] = {}

Numerics = Mapping[str, str]  # part -> numerics id
NONE: Numerics = {}


def of_run(spec: RunSpec) -> dict[str, str]:
    """The numerics id of each part of a run's code."""
    of_papers = {_of_paper(file): file for file in fingerprint.code_of_setting(spec.setting)}
    return {
        **of_composition(spec.composition, spec.plugins),
        f"model {spec.setting.model}": of_named_model(spec.setting.model, spec.plugins),
        **{part: of_file(part, file) for part, file in of_papers.items()},
        **{part: _of_plugin(file) for part, file in fingerprint.scored_by(spec).items()},
    }


def of_composition(composition: str, folders: Folders = NONE_OF_ITS_OWN) -> dict[str, str]:
    """The ids of all parts except the model.

    Raises:
        UserError: for an unknown method.
    """
    files = part_files(folders)
    parts = [name for name in Composition.parse(composition).names if name in files]
    return {CORE: _id(CORE, of_core())} | {
        f"method {name}": of_file(f"method {name}", files[name]) for name in parts
    }


def of_named_model(name: str, folders: Folders) -> str:
    """The id of a model's module and its entry in the registry."""
    return _id(f"model {name}", of_registered(name, folders))


def of_file(part: str, file: Path) -> str:
    """The id of a part that starts from one file, of this package or a plug-in."""
    return _of_plugin(file) if is_plugin(file) else _id(part, _of_closure(file))


def of_partition(schemes: tuple[Path, ...] = ()) -> str:
    """The id of the code that assigns samples to clients, including plug-in schemes."""
    ids = [_id(PARTITION, _partition()), *(_of_plugin(file) for file in schemes)]
    return " ".join(ids)


def of_analysis(file: Path, composition: str = "", folders: Folders = NONE_OF_ITS_OWN) -> str:
    """The ids of code that analyses runs, or computes without one, as a rule's parameter.

    Args:
        file: of the module that the command calls, such as analysis/landscape_of_run.py.
        composition: of a method whose hooks it calls.
    """
    ids = {_of_analysis(file): _id(_of_analysis(file), _of_analysing(file))}
    if composition:
        ids |= of_composition(composition, folders)
    return in_words(ids)


def recorded(ids: Numerics) -> dict[str, str]:
    """Ids that a finished run recorded, by the names that its parts have now."""
    return {RENAMED.get(part, part): each for part, each in ids.items()}


def differing(then: Numerics, now: Numerics) -> list[str]:
    """The parts whose ids differ; an id that a former rule gave to the code of today is its own.

    The layers of a program's model are compared only if both have them: older records do not.

    Args:
        then: recorded ids. Where a part has several, separated by spaces, each is compared.
        now: ids that this process has computed.
    """

    def is_same(part: str) -> bool:
        ids = [str(each.get(part, "absent")).split() for each in (then, now)]
        pairs = zip(*ids, strict=False)
        same = all(old == new or old in FORMER.get(new, ()) for old, new in pairs)
        return same and len(ids[0]) == len(ids[1])

    older = {part for part in then.keys() ^ now.keys() if part.startswith(LAYERS)}
    return [part for part in sorted({*then, *now} - older) if not is_same(part)]


def in_words(ids: Numerics) -> str:
    """Ids in one line."""
    return " ".join(f"{part}: {each}" for part, each in ids.items())


def _of_analysing(file: Path) -> str:
    return _of_closure(file, outside=fingerprint.OUTSIDE_AN_ANALYSIS)


def _of_analysis(file: Path) -> str:
    return f"analysis {file.stem}"


def _analyses() -> list[Path]:
    """The modules that rules for analyses and studies call, by their files' names."""
    files = [
        *fingerprint.PACKAGE.glob("*/*_of_run*.py"),
        *fingerprint.PACKAGE.glob("papers/*/*_of_run*.py"),
    ]
    return sorted({*files, *papers.files_of("study").values()})


@cache
def _of_closure(*files: Path, outside: tuple[str, ...] = fingerprint.OUTSIDE_A_RUN) -> str:
    return _short(fingerprint.of_closure(files, outside))


def of_core() -> str:
    """The fingerprint of the code that every run has."""
    return _of_closure(*fingerprint.core_files())


@cache
def _of_plugin(file: Path) -> str:
    """A plug-in's fingerprint: its own code, and the ids of what it imports from this package.

    A blessed refactoring of this package therefore does not invalidate a plug-in's runs.
    """
    outside = fingerprint.OUTSIDE_A_RUN
    files = fingerprint.closure((file,), outside)
    packages = fingerprint.closure(fingerprint.packages_imported_by(files), outside)
    own = [(path, syntax_of(path).digest) for path in files if is_plugin(path)]
    own += fingerprint.files_read_by(files).items()
    digests = [digest for _, digest in own]
    # Files that exchange their contents are others. One alone needs no name.
    named = [f"{os.path.relpath(path, file.parent)} {digest}" for path, digest in own]
    ours, before = [*_codes_of(files)], [*_codes_of(files | packages)]
    today = [*ours, *(named if len(own) > 1 else digests)]
    return _known_as(_of_lines(today), _of_lines(ours + digests), _of_lines(before + digests))


def _of_lines(lines: Iterable[str]) -> str:
    return _short(fingerprint.of_text(" ".join(sorted(lines))))


def _codes_of(files: set[Path]) -> Iterator[str]:
    """The code of each of this package's files that is not in the core, or its id."""
    core = fingerprint.closure(fingerprint.core_files(), fingerprint.OUTSIDE_A_RUN)
    names = {path: name for name, path in part_files().items() if not is_plugin(path)}
    for path in files - core:
        if is_plugin(path):
            continue
        if path in names:
            yield _id(f"method {names[path]}", _of_closure(path))
        else:
            digest = syntax_of(path).digest
            yield fingerprint.SAME.get(digest, digest)


def _known_as(today: str, *former: str) -> str:
    """Today's id, once it is known by which former ones results may name it."""
    FORMER[today] = former
    return today


def _partition() -> str:
    module = fingerprint.module_path("fedrepro.data.partition.partition")
    return _of_closure(module, outside=fingerprint.HANDLING)


def of_registered(name: str, folders: Folders = NONE_OF_ITS_OWN) -> str:
    """The fingerprint of a model: its module and its entry in the registry."""
    entry = models.find(name, folders)
    layout = " channels_last" if entry.channels_last else ""
    file = models.module_file(name, folders)
    module = _of_plugin(file) if is_plugin(file) else _of_closure(file)
    # Until November 2026 such weights were drawn anew: results from then are of another model.
    kept = " weights kept" if is_plugin(file) and _sets_weights(file) else ""

    def with_entry(code: str) -> str:
        text = f"{code} {entry.function} {entry.family}{layout}{kept}"
        return _short(fingerprint.of_text(text))

    return _known_as(with_entry(module), *map(with_entry, FORMER.get(module, ())))


# Names by which code gives a module weights other than its layers' own.
FILLING = (
    "xavier_", "kaiming_", "orthogonal_", "uniform_", "normal_", "constant_", "trunc_normal_",
    "zeros_", "ones_", "eye_", "dirac_", "sparse_", "fill_", "copy_", "zero_",
)  # fmt: skip
LOADING = {"load_state_dict", "load_model", "load_file", "from_pretrained", "data", "weights"}


@cache
def _sets_weights(file: Path) -> bool:
    """True if a plug-in's code seems to initialise or load weights, which are kept.

    Not with ``keeps_weights``: they always were.
    """
    closure = fingerprint.closure((file,), fingerprint.OUTSIDE_A_RUN)
    nodes = [node for path in filter(is_plugin, closure) for node in ast.walk(parse(path))]
    names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    names |= {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {node.arg for node in nodes if isinstance(node, ast.keyword) and node.arg}
    if "keeps_weights" in names:
        return False
    return bool(LOADING & names) or any(name.startswith(FILLING) for name in names)


def today() -> dict[str, str]:
    """The fingerprint of every part of this package, without plug-ins."""
    files = {name: file for name, file in part_files().items() if not is_plugin(file)}
    return {
        CORE: of_core(),
        PARTITION: _partition(),
        **{f"method {name}": _of_closure(file) for name, file in files.items()},
        **{f"model {name}": of_registered(name) for name in models.MODELS},
        **{_of_analysis(file): _of_analysing(file) for file in _analyses()},
        **{
            _of_paper(file): _of_closure(file)
            for role in ("given", "cohorts")
            for file in papers.files_of(role).values()
        },
    }


def _of_paper(file: Path) -> str:
    """The part that a file of a paper's package is; settings use it."""
    return f"paper {file.parent.name} {file.stem}"


def _short(digest: str) -> str:
    return digest[:DIGITS]


def _id(part: str, code: str) -> str:
    """The id of a part whose fingerprint is ``code``; if it is not blessed, ``code`` itself."""
    entry = blessed().get(part, {})
    return entry["id"] if entry.get("code") == code else code


@cache
def blessed() -> dict[str, dict[str, str]]:
    """Part -> ``id``, and the fingerprint ``code`` of the last code that was blessed with it."""
    entries: dict[str, dict[str, str]] = json.loads(FILE.read_text(encoding="utf-8"))
    return entries


def refuse_changed_code(spec: RunSpec) -> None:
    """Refuse to sign a run's result with files that differ from what this process has imported.

    Raises:
        UserError: if a file of this package has changed since the process started, or one of the
            run's plug-ins since it was imported.
    """
    code = fingerprint.closure(fingerprint.code_of_spec(spec), fingerprint.OUTSIDE_A_RUN)
    changed = changed_since_the_start() or plugins.changed_since_import(filter(is_plugin, code))
    if changed:
        why = (
            "changed after this process started, which may have loaded the old file: "
            "run the same command again, in a notebook after a restart"
        )
        raise refusal(os.path.relpath(changed), why, code="")


def changed_since_the_start() -> str | None:
    """A file of this package that has changed since this process started, if there is one."""
    before, now = fedrepro.CODE_FILES, fedrepro.code_files()
    return next((path for path in (*before, *now) if before.get(path) != now.get(path)), None)
