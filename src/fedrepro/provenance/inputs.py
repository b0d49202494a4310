"""The identity of a run's data: samples, partition, initial weights and inputs.

A partition records the code and the labels that it was made from. One that an older version made
does not: it is made again in memory, and counts if it has the same bytes.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from fedrepro.config.settings import Setting
from fedrepro.data.dataset import Dataset
from fedrepro.data.partition.partition import Partition, make_partition
from fedrepro.data.tensors.standardise import knows_held_out
from fedrepro.provenance import numerics
from fedrepro.provenance.identity import Difference, Meaning
from fedrepro.support.errors import UserError
from fedrepro.support.plugins import Folders

# Of a data set's training arrays, those that decide who holds which sample.
PARTITIONED = ("train_y", "train_group", "train_held_out")


def data_of(
    dataset: Dataset,
    held: Mapping[str, Any],
    weights_sha256: str | None,
    inputs: Mapping[str, str],
) -> dict[str, Any]:
    """The identity of a run's data, as its manifest states it.

    Args:
        held: what identifies the partition (:func:`held_by`); empty if it has yet to be made.
        weights_sha256: of the file of initial weights; None if the run draws them.
        inputs: SHA-256 of each input of the run's method, by name.
    """
    return {
        "content_sha256": dataset.meta.get("content_sha256"),
        **{key: dataset.meta[key] for key in ("clients_sha256",) if key in dataset.meta},
        # The part of meta.json, next to the arrays, that affects the numbers.
        "task": dataset.task,
        "classes": dataset.classes,
        "mean": _listed(dataset.mean),
        "std": _listed(dataset.std),
        "client_standardised": _listed(dataset.client_standardised),
        **held,
        "weights_sha256": weights_sha256,
        **({"given": dict(inputs)} if inputs else {}),
    }


def _listed(numbers: Sequence[float] | None) -> list[float] | None:
    """Numbers as JSON returns them."""
    return None if numbers is None else list(numbers)


def held_by(partition: Partition, dataset: Dataset) -> dict[str, Any]:
    """The keys of :func:`data_of` that follow from a partition."""
    missing = {"missing_sha256": dataset.meta.get("missing_sha256")}
    return {
        # Of the cells that a table leaves empty, if its statistics are those of this partition.
        **(missing if knows_held_out(dataset, partition) else {}),
        "partition_sha256": digest_of(partition),
        # The digest does not separate training from test rows.
        "clients": len(partition.train),
    }


def digest_of(partition: Partition) -> str:
    """A hash of which client holds which samples."""
    digest = hashlib.sha256()
    for indices in (each for _, rows, _ in partition.parts for each in rows):
        digest.update(len(indices).to_bytes(8, "little") + indices.tobytes())
    return digest.hexdigest()


def partition_record(setting: Setting, dataset: Dataset, plugins: Folders) -> dict[str, Any]:
    """The code and labels that a partition of a setting follows from, for its file."""
    arrays = dataset.meta["splits"]["train"]["arrays"]
    labels = {key: arrays[key]["sha256"] for key in PARTITIONED if key in arrays}
    return {"code": code_of_partition(setting, plugins), "labels": labels}


def code_of_partition(setting: Setting, plugins: Folders) -> str:
    """The ids of the code that partitions a setting's samples, a plug-in's scheme included."""
    schemes = plugins.files("partitions")
    own = (schemes[name] for name in setting.partition.schemes if name in schemes)
    return numerics.of_partition(tuple(own))


def make_partition_of(setting: Setting, seed: int, dataset: Dataset, plugins: Folders) -> Partition:
    """Partitions a data set among the clients of a setting, with a record of how it was made.

    Raises:
        UserError: if the scheme cannot be applied to these samples.
    """
    train = dataset.train
    return make_partition(
        train.y,
        train.group,
        setting.partition,
        seed,
        train.held_out,
        dataset.group_names,
        partition_record(setting, dataset, plugins),
    )


def partition_differences(
    partition: Partition, setting: Setting, seed: int, dataset: Dataset, plugins: Folders
) -> list[Difference]:
    """Lists how a stored partition differs from the one that would be made now."""
    wanted = partition_record(setting, dataset, plugins)
    spec: dict[str, Any] = json.loads(json.dumps(setting.partition.model_dump()))
    both = {key: (partition.spec[key], spec[key]) for key in partition.spec.keys() & spec.keys()}
    if other := [
        f"{key} {then} instead of {now}" for key, (then, now) in both.items() if then != now
    ]:
        return [_other("scheme", "; ".join(other), "")]
    record = partition.made_with
    if record:
        keys = [*numerics.differing({"code": record.get("code", "")}, {"code": wanted["code"]})]
        keys += ["labels"] if record.get("labels") != wanted["labels"] else []
        return [_other(key, record.get(key), wanted[key]) for key in keys]
    if not partition.fits(dataset.train.y):
        return [_other("labels", "others", "")]
    try:
        made = make_partition_of(setting, seed, dataset, plugins)
    except UserError as error:
        return [_other("scheme", "", str(error))]
    digests = digest_of(partition), digest_of(made)
    return [] if digests[0] == digests[1] else [_other("division of the samples", *digests)]


def _other(key: str, recorded: object, wanted: object) -> Difference:
    words = f"its partition was made with another {key}"
    if key == "code":
        words = "its partition was made by other code"
    elif key == "labels":
        words = "its partition was made from other data"
    return Difference(
        Meaning.OTHER_NUMBERS, "data", f"partition {key}", str(recorded), str(wanted), words
    )
