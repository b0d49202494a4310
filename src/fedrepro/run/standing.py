"""Tell whether a result is current: compare it with the one that would be made now.

`fedrepro run`, `explain`, `estimate`, `verify`, the workflow's rules and `make reference` ask here,
so that they give the same answer. Only what exists is compared: results stay valid if their data,
their partition or their inputs have been deleted.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrepro.config.run_spec import RunSpec
from fedrepro.config.settings import ArtifactFromData, ArtifactFromFile, Setting
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.data.catalogue.catalogue import digest_of as digest_of_entry
from fedrepro.data.catalogue.entries import Own
from fedrepro.data.catalogue.kinds import DatasetSpec
from fedrepro.data.dataset import PREPARED, Dataset, is_prepared, open_dataset, read_meta
from fedrepro.data.fetching.own_files import sha256_of_own
from fedrepro.data.fetching.raw_files import DOWNLOADS, recorded
from fedrepro.data.partition.assigning import of_server
from fedrepro.data.partition.partition import Partition
from fedrepro.data.prepare import prepare, recipe_of
from fedrepro.provenance import inputs
from fedrepro.provenance.identity import Difference, Meaning, in_words, other_numbers
from fedrepro.run.replayed import differences_of
from fedrepro.run.results import MODEL, RunRecord, not_finished, read_run
from fedrepro.support.errors import UserError

ENDED = ("finished", "diverged")


@dataclass(frozen=True)
class Standing:
    """A run's result in ``results/runs``, and how it differs from the one that would be made now.

    Attributes:
        differences: all of them; empty without a result.
    """

    record: RunRecord
    differences: tuple[Difference, ...] = ()

    @property
    def is_current(self) -> bool:
        """True for a whole result that would not be made again."""
        return self.record.state in ENDED and not other_numbers(self.differences)

    @property
    def why(self) -> str:
        """The reason why a result would be made again, in words; "" if current or missing."""
        if self.record.state == "damaged":
            return self.record.why
        return in_words(other_numbers(self.differences))

    @property
    def elsewhere(self) -> str:
        """The other packages and the other machine that a current result is from; or ""."""
        return in_words(
            gap for gap in self.differences if gap.meaning in (Meaning.OTHER_BITS, Meaning.APART)
        )


def standing_of(bench: Workbench, run: RunKey) -> Standing:
    """Compares a run's result with the one that would be made now.

    Raises:
        UserError: for an unknown setting or method.
    """
    record = read_run(bench.root, run)
    return Standing(record, (*differences_now(bench, record),))


def differences_now(bench: Workbench, record: RunRecord) -> list[Difference]:
    """Lists how a result differs from the one that would be made now; [] without a result.

    Data are compared unless it is a committed result, which was made where there were others.

    Raises:
        UserError: for an unknown setting or method.
    """
    spec, committed = bench.spec_of(record.run), record.reference
    if not record.manifest:
        return []
    data, upstream = ({}, []) if committed else data_now(bench, spec)
    return [*differences_of(record, spec, data), *upstream]


def of_another(bench: Workbench, record: RunRecord) -> list[Difference]:
    """Lists what makes a result one of another configuration, of other data or of other code.

    The class of arithmetic is left out: it is shown with the result, which stays valid in its
    class.
    """
    listed = other_numbers(differences_now(bench, record))
    return [difference for difference in listed if difference.about != "arithmetic"]


def data_now(bench: Workbench, spec: RunSpec) -> tuple[dict[str, Any], list[Difference]]:
    """The identity of a run's data now, and the parts of them that would be made again first.

    Returns:
        The keys of :func:`fedrepro.provenance.inputs.data_of`, as far as data, partition and inputs
        are there and current; and a difference for each of these that is not current.
    """
    setting, upstream = spec.setting, prepared_differences(bench, spec.setting.dataset)
    dataset = prepared(bench, setting.dataset)
    if upstream or dataset is None:
        return {}, [*upstream, *_of_inputs(bench, spec, StoredPartition())[1]]
    partition = partition_now(bench, setting, spec.seed, dataset)
    given, stale = _of_inputs(bench, spec, partition)
    stale = [*partition.differences, *stale]
    data = inputs.data_of(dataset, {} if partition.differences else partition.held, None, given)
    if spec.weights:  # the configuration states their hash
        del data["weights_sha256"]
    if len(given) < len(spec.inputs):
        data.pop("given", None)
    return data, stale


@dataclass(frozen=True)
class StoredPartition:
    """A partition's file, as far as it is there.

    Attributes:
        held: what identifies it (:func:`fedrepro.provenance.inputs.held_by`).
        server: what identifies the server's samples; None without any.
        differences: how it differs from the partition that would be made now.
    """

    held: Mapping[str, Any] = field(default_factory=dict)
    server: str | None = None
    differences: tuple[Difference, ...] = ()


# By the partition's file, its state on disk and what it would be made from: a table's runs share
# partitions, and one without a record has to be made in memory to be compared.
_partitions: dict[tuple[object, ...], StoredPartition] = {}


def partition_now(
    bench: Workbench, setting: Setting, seed: int, dataset: Dataset | None = None
) -> StoredPartition:
    """A setting's stored partition, compared with the one that would be made now.

    Args:
        dataset: its prepared data, opened if it is None. Without them, nothing is compared.
    """
    path = bench.root / setting.partition_path(seed)
    dataset = dataset or prepared(bench, setting.dataset)
    try:
        states = [file.stat() for file in (path, path.with_suffix(".json"))]
    except FileNotFoundError:
        return StoredPartition()
    except OSError as error:
        return StoredPartition(differences=(_other("partition", f"{path}: {error.strerror}"),))
    if dataset is None:
        return StoredPartition()
    wanted = inputs.partition_record(setting, dataset, bench.plugins)
    key = (
        path,
        *((state.st_size, state.st_mtime_ns) for state in states),
        json.dumps([wanted, setting.partition.model_dump(mode="json")]),
    )
    if key not in _partitions:
        try:
            partition = Partition.load(path)
            differing = inputs.partition_differences(
                partition, setting, seed, dataset, bench.plugins
            )
        except UserError as error:  # damaged
            return StoredPartition(differences=(_other("partition", str(error)),))
        server = None if partition.server is None else digest_of_server(partition)
        held = inputs.held_by(partition, dataset)
        _partitions[key] = StoredPartition(held, server, tuple(differing))
    return _partitions[key]


def prepared_differences(bench: Workbench, name: str) -> list[Difference]:
    """Lists why a data set would be prepared again; [] if it is current or missing.

    One whose arrays are there without meta.json is neither: its last preparation failed or was
    stopped.

    Files that the user supplied and has removed are not missed. Data that an older reader made are
    current if today's reader makes the same bytes.
    """
    entry, archives = bench.datasets[name], bench.config.data.archives
    try:
        folder = bench.root / PREPARED / name
        meta = read_meta(folder)
        if meta is None:
            if not (folder.is_dir() and any(folder.iterdir())):
                return []
            # What runs were trained on is there no more, and the entry may have been edited since.
            words = f"data set {name} was left unfinished: `fedrepro prepare {name}` says why"
            return [_other(f"data set {name}", words)]
        raw = sha256_of_own(entry, archives) if isinstance(entry, Own) else None
        entry = _as_prepared(bench, name)
        made_by = _reader_of(meta, entry)
        if made_by is None:
            words = f"data set {name} was made from another catalogue entry"
            return [_other(f"data set {name}", words)]
        if raw is None:
            return []
        if meta.get("recipe") != recipe_of(entry, raw, made_by):
            return [_other(f"data set {name}", f"the files of data set {name} have changed")]
        if made_by < entry.revision:
            now, _ = _read_now(name, bench, raw)
            if meta["content_sha256"] != now["content_sha256"]:
                return [_other(f"data set {name}", f"data set {name} was made by an older reader")]
    except UserError as error:
        return [_other(f"data set {name}", str(error))]
    return []


def _as_prepared(bench: Workbench, name: str) -> DatasetSpec:
    """A data set's entry, with the `path` from which it was prepared: only the bytes count."""
    entry = bench.datasets[name]
    if not isinstance(entry, Own):
        return entry
    places = recorded(bench.root / DOWNLOADS / name)
    return entry.model_copy(update={"path": next(iter(places), entry.path)})


def _reader_of(meta: Mapping[str, Any], entry: DatasetSpec) -> int | None:
    """The revision of the reader that prepared data; None if they are of another entry."""
    revisions = range(entry.revision, 0, -1)
    return next(
        (past for past in revisions if meta.get("entry") == digest_of_entry(entry, past)), None
    )


# What today's reader makes of data that an older one prepared: meta.json, and the empty cells.
_read: dict[tuple[str, str], tuple[dict[str, Any], NDArray[np.bool_] | None]] = {}


def _read_now(
    name: str, bench: Workbench, raw: str
) -> tuple[dict[str, Any], NDArray[np.bool_] | None]:
    """A data set of the user's own files as it would be prepared now, without its samples."""
    if (name, raw) not in _read:
        with TemporaryDirectory() as folder:
            place = Path(folder)
            archives = bench.config.data.archives
            prepare(name, bench.datasets[name], archives, downloads=place / "raw", root=place)
            dataset = open_dataset(name, place)
            missing = dataset.train.missing
            _read[name, raw] = dataset.meta, None if missing is None else np.array(missing)
    return _read[name, raw]


def prepared(bench: Workbench, name: str) -> Dataset | None:
    """A prepared data set, or None if it is missing or damaged.

    One that an older reader made has today's notes of what is in its statistics: without them, a
    run whose clients hold rows out would be current until its data are prepared again.
    """
    if not is_prepared(name, bench.root / PREPARED):
        return None
    try:
        dataset, entry = open_dataset(name, bench.root / PREPARED), bench.datasets[name]
        made_by = _reader_of(dataset.meta, _as_prepared(bench, name))
        if not isinstance(entry, Own) or made_by == entry.revision:
            return dataset
        raw = sha256_of_own(entry, bench.config.data.archives)
        if raw is None:
            return dataset
        meta, missing = _read_now(name, bench, raw)
        return replace(
            dataset,
            train=replace(dataset.train, missing=missing),
            meta=dataset.meta | {"missing_sha256": meta.get("missing_sha256")},
            standardised=bool(meta.get("standardised", False)),
        )
    except UserError:
        return None


def _of_inputs(
    bench: Workbench, spec: RunSpec, partition: StoredPartition
) -> tuple[dict[str, str], list[Difference]]:
    """SHA-256 of each input of a run that is there, by name, and the stale ones."""
    known: dict[str, str] = {}
    stale: list[Difference] = []
    for name, source in spec.inputs.items():
        match source:
            case RunSpec():
                standing = standing_of(bench, source.key)
                if why := standing.why:
                    words = f"input {name}: {source.key.folder}: {why}"
                    stale.append(_other(f"input {name}", words))
                elif digest := standing.record.manifest.get("files", {}).get(MODEL):
                    known[name] = str(digest)
            case ArtifactFromFile():
                if source.sha256 is not None:
                    known[name] = source.sha256
            case ArtifactFromData():
                stale += prepared_differences(bench, source.dataset)
                other = prepared(bench, source.dataset)
                if other is not None:
                    known[name] = digest_of_share(other, source)
            case _:
                if partition.server is not None and not partition.differences:
                    known[name] = partition.server
    return known, stale


def digest_of_server(partition: Partition) -> str:
    """The SHA-256 that identifies the server's own samples as an input."""
    assert partition.server is not None
    return hashlib.sha256(partition.server.tobytes()).hexdigest()


def digest_of_share(dataset: Dataset, source: ArtifactFromData) -> str:
    """The SHA-256 that identifies a share of another data set as an input."""
    rows = of_server(dataset.train.y, source.share)
    content = str(dataset.meta.get("content_sha256")).encode()
    return hashlib.sha256(content + rows.tobytes()).hexdigest()


def _other(key: str, words: str) -> Difference:
    return Difference(Meaning.OTHER_NUMBERS, "data", key, words=words)


def refuse_stale_input(bench: Workbench, source: RunSpec) -> None:
    """Refuses an input run that is missing, unfinished or would be made again.

    Raises:
        UserError: one line with the command that makes it.
    """
    standing = standing_of(bench, source.key)
    if not standing.is_current or standing.record.state != "finished":
        raise not_finished(source.key, standing.why or standing.record.why)
