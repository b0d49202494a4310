"""Load the artifacts that a run is given, and refuse those that do not match it.

:mod:`fedrepro.run.assembly` uses them. This module is not part of a run's fingerprint: what it
reads counts by its SHA-256.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from fedrepro.config.run_spec import ResolvedSource, RunSpec
from fedrepro.config.settings import ArtifactFromData, ArtifactFromFile
from fedrepro.config.targets import RunKey
from fedrepro.data.dataset import PREPARED, Dataset, open_dataset, refuse_damage
from fedrepro.data.partition.assigning import of_server
from fedrepro.data.partition.partition import Partition
from fedrepro.data.tensors.standardise import standardised
from fedrepro.engine.method import SAMPLES, Artifact
from fedrepro.engine.net import Net
from fedrepro.models import registry as models
from fedrepro.provenance.identity import in_words, other_numbers
from fedrepro.provenance.inputs import data_of, digest_of, held_by
from fedrepro.run.assembly import Plan, outdated
from fedrepro.run.networks import StoredArtifact
from fedrepro.run.replayed import differences_of
from fedrepro.run.results import MODEL as MODEL
from fedrepro.run.results import RunRecord, changed_files, finished_run
from fedrepro.run.standing import digest_of_server, digest_of_share
from fedrepro.run.store import digest_of as digest_of_tensors
from fedrepro.run.store import load_tree, save_tree
from fedrepro.support.errors import bad_value, damaged, missing_value, refusal
from fedrepro.support.files import sha256_of

TIED_TO_DATASET = ("start",)  # made from one data set, and of no use with another
EACH_CLIENT, GENERATOR = "a model of each client", "a generator"
# What the package's methods require; what others require is known to them alone.
KINDS = {
    "unlabelled": SAMPLES,
    "start": SAMPLES,
    "generator": GENERATOR,
    "discriminators": EACH_CLIENT,
}


def facts_of(
    artifact: Artifact, plan: Plan, dataset: Dataset, partition: Partition
) -> dict[str, Any]:
    """An artifact's metadata: what it is, and which runs can use it."""
    # What its network has besides its tensors.
    constants = plan.federation.context.net.constants(artifact.part)
    return {
        "model": plan.spec.setting.model,
        "part": artifact.part,
        "input_shape": dataset.shapes,
        "outputs": plan.networks.outputs,
        "range": _range(plan.spec, dataset),
        "clients": len(partition.train) if artifact.each_client else None,
        "partition": digest_of(partition) if artifact.each_client else None,
        "about": dict(artifact.about),
        **({"data": _data(dataset)} if artifact.part == SAMPLES else {}),
        **({"constants": digest_of_tensors(constants)} if constants else {}),
    }


def _data(dataset: Dataset) -> str:
    """The samples that an artifact was made from: a name and the start of their SHA-256."""
    return f"{dataset.name} {str(dataset.meta.get('content_sha256'))[:12]}"


def _range(spec: RunSpec, dataset: Dataset) -> Any:
    """The scaling of inputs, in the same words for the same numbers."""
    if spec.setting.scaling:
        return spec.setting.scaling
    if dataset.mean is None or dataset.std is None:
        return "unit"
    return [list(dataset.mean), list(dataset.std)]


def save_generator(
    path: Path,
    model: str,
    input_shape: tuple[int, ...],
    tensors: Mapping[str, torch.Tensor],
    scaling: Literal["unit", "symmetric"] = "symmetric",
) -> None:
    """Write a generator that was trained elsewhere to a file that runs can be given.

    Args:
        model: of :mod:`fedrepro.models.registry`, with a part ``generator`` and a ``latent``.
        input_shape: of one image that it makes.
        tensors: the generator's parameters and running statistics by their names in that part, as
            in a ``state_dict``; tensors that are not floating-point are left out.
        scaling: the range of its images.

    Raises:
        UserError: for a model without a generator, and for tensors that do not fit it.
    """
    module = models.build(model, input_shape, 1)
    latent = getattr(module, "latent", None)
    if not isinstance(latent, int):
        raise refusal(f"model {model}", "expected one with a generator", "model", model)
    floats = {name: leaf for name, leaf in tensors.items() if leaf.is_floating_point()}
    Net(module.get_submodule("generator")).refuse_others(floats, f"{path}: {model}'s generator")
    facts = {
        "model": model,
        "part": "generator",
        "input_shape": list(input_shape),
        "outputs": 1,
        "range": scaling,
        "clients": None,
        "partition": None,
        "about": {"latent": latent},
    }
    save_tree(path, floats, facts)


def load(
    root: Path, spec: RunSpec, dataset: Dataset, partition: Partition
) -> dict[str, StoredArtifact]:
    """All artifacts that ``spec``'s method requires.

    Raises:
        UserError: for a run that is unfinished or has another configuration, a file with another
            hash, and an artifact made for other clients or other inputs.
    """
    recipient = _Recipient(root, spec, dataset, partition)
    return {need: recipient.load(need, source) for need, source in spec.inputs.items()}


def data_of_plan(
    plan: Plan, dataset: Dataset, partition: Partition, artifacts: Mapping[str, StoredArtifact]
) -> dict[str, Any]:
    """The identity of the data of a run that is ready to start, as its manifest states it."""
    digests = {name: artifact.sha256 for name, artifact in artifacts.items()}
    held, weights = held_by(partition, dataset), plan.networks.weights_sha256
    return data_of(dataset, held, weights, digests) | _given_to_own(plan)


def _given_to_own(plan: Plan) -> dict[str, str]:
    """Keys for what models and losses of the user's own are given in another way than they were.

    In earlier versions whole numbers and truth values had 32 bits, and a mean was one of means over
    500 samples.
    """
    inputs, of_mean = plan.networks.own_inputs, plan.federation.context.task.of_mean
    return {
        **({"own_inputs": inputs} if inputs else {}),
        **({"own_mean": "at once"} if of_mean else {}),
    }


@dataclass(frozen=True)
class _Recipient:
    """The run that artifacts are given to."""

    root: Path
    spec: RunSpec
    dataset: Dataset
    partition: Partition

    def load(self, need: str, source: ResolvedSource) -> StoredArtifact:
        if source == "server":
            return self._of_server()
        if isinstance(source, ArtifactFromData):
            return self._of_data(need, source)
        if isinstance(source, RunSpec):
            path = _of_run(self.root, source)
        else:
            path = _of_file(self.root, need, source)
        tensors, facts = load_tree(self.root / path)
        self._check(path, need, facts)
        return StoredArtifact(sha256_of(self.root / path), tensors, facts)

    def _of_server(self) -> StoredArtifact:
        dataset, partition, rows = self.dataset, self.partition, self.partition.server
        if rows is None:
            why = "the server has no samples"
            raise outdated(partition, why, self.spec.setting.name, self.spec.seed)
        self._refuse_client_standardised("inputs: server")
        inputs = torch.from_numpy(np.array(standardised(dataset, partition).train.x[rows]))
        return StoredArtifact(digest_of_server(partition), {"x": inputs}, {})

    def _of_data(self, need: str, source: ArtifactFromData) -> StoredArtifact:
        refuse_damage(source.dataset, self.root / PREPARED)
        dataset, other = self.dataset, open_dataset(source.dataset, self.root / PREPARED)
        x, where = other.train.x, f"inputs: {need}: data set {source.dataset}"
        differing = {
            "input shape": (list(other.input_shape), list(dataset.input_shape)),
            "kind of numbers": (str(x.dtype), str(dataset.train.x.dtype)),
        }
        self._refuse_differing(where, differing)
        self._refuse_client_standardised(where)
        inputs = torch.from_numpy(np.array(x[of_server(other.train.y, source.share)]))
        return StoredArtifact(digest_of_share(other, source), {"x": inputs}, {})

    def _check(self, path: Path, need: str, facts: Mapping[str, Any]) -> None:
        """Refuse an artifact of another kind, or made for other inputs, clients or data.

        Raises:
            UserError: one line that names the file and the difference.
        """
        if "part" not in facts:
            raise refusal(path, "the file has no fedrepro metadata: make it again", code="damaged")
        partition = self.partition
        shape, here = list(facts["input_shape"]), list(self.dataset.input_shape)
        differing: dict[str, tuple[Any, Any]] = {}
        if need in KINDS:
            differing["what it is"] = (_kind_of(facts), KINDS[need])
        differing |= {
            "channels": (shape[0], here[0]),
            "input shape": (shape, here),
            "range of inputs": (facts["range"], _range(self.spec, self.dataset)),
        }
        if facts["clients"] is not None:
            differing["clients"] = (facts["clients"], len(partition.train))
            differing["partition"] = (facts["partition"][:12], digest_of(partition)[:12])
        if need in TIED_TO_DATASET:
            differing["data"] = (facts.get("data"), _data(self.dataset))
        self._refuse_differing(f"{path}: given as {need}", differing)

    def _refuse_client_standardised(self, where: str) -> None:
        """Refuse samples without a client, if each client's data have a scale of their own."""
        if self.dataset.client_standardised:
            why = f"not possible for {self.dataset.name}, whose data clients standardise"
            raise refusal(where, why)

    def _refuse_differing(self, where: str, differing: Mapping[str, tuple[Any, Any]]) -> None:
        """Refuse the first of some values that is not the one that the run has."""
        for key, (stored, wanted) in differing.items():
            if stored != wanted:
                raise bad_value(where, key, stored, f"{wanted}, as {self.spec.setting.name} has it")


def _of_run(root: Path, spec: RunSpec) -> Path:
    run = spec.key
    record = run_with_model(root, run)
    if why := in_words(other_numbers(differences_of(record, spec))):
        raise refusal(run.folder, f"{why}: {run.command}")
    return run.folder / MODEL


def run_with_model(root: Path, run: RunKey) -> RunRecord:
    """A finished run of this machine, with the model that it wrote.

    Raises:
        UserError: if it is not finished, or the file of its model is not as the run wrote it.
    """
    record = finished_run(root, run)
    if changed := next(changed_files(root / run.folder, record.manifest, MODEL), None):
        raise damaged(run.folder, f"{changed}: {run.command}")
    return record


def _of_file(root: Path, need: str, source: Any) -> Path:
    assert isinstance(source, ArtifactFromFile)
    if not (root / source.file).is_file():
        raise bad_value(f"inputs: {need}", "file", str(source.file), "an existing file")
    digest, where = sha256_of(root / source.file), f"inputs: {need}: {source.file}"
    if source.sha256 is None:
        wanted = f"the hash of a file that you trust; this one has {digest}"
        raise missing_value(where, "sha256", wanted)
    if digest != source.sha256:
        raise bad_value(where, "sha256", source.sha256, digest)
    return source.file


def _kind_of(facts: Mapping[str, Any]) -> str:
    """The kind of an artifact, in words."""
    if facts["clients"] is not None:
        return EACH_CLIENT
    return GENERATOR if "latent" in facts.get("about", {}) else facts["part"] or "a model"
