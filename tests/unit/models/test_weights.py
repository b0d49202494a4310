"""Weights learned elsewhere: read if they are the right ones, and nothing that they say is run."""

import hashlib
import io
import os
import pickle  # noqa: TID251 - to plant what must not be read
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save
from torch import nn

from fedrepro.config.loading import load
from fedrepro.data.catalogue.catalogue import Weights
from fedrepro.data.dataset import Split
from fedrepro.data.fetching.weights import FOLDER, fetch_weights, read_weights
from fedrepro.models import registry
from fedrepro.models.pretrained import load_into
from fedrepro.models.registry import LearnedWeights
from fedrepro.provenance.inputs import data_of, held_by
from fedrepro.run.assembly import Plan, make_plan
from fedrepro.support.errors import UserError
from support.loopback import serving
from support.places import ROOT
from support.refusals import refused
from support.tiny_run import dataset, partition, run_spec

SHAPE = (3, 64, 64)
CACHED = "efficientnet_b0_rwightman-7f5810bc.pth"


class Command:
    """An object that makes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.mark}",)


def give(folder: Path, content: bytes, file: str) -> Weights:
    """A file where it is looked for, and its entry."""
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    (folder / FOLDER / file).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    return Weights(title="x", licence="x", name=file, sha256=digest)


def plan_with(name: str, entry: Weights) -> Plan:
    """A run's plan whose model is EfficientNet-B0 with these weights, on images of zeros."""
    spec = replace(run_spec(model=name), weights=("efficientnet_b0", entry))
    data = dataset()
    large = np.zeros((len(data.train), *SHAPE), np.uint8)
    train = Split(large, data.train.y, None)
    test = Split(large[:1], data.train.y[:1], None)
    return make_plan(spec, replace(data, train=train, test=test, input_shape=SHAPE), partition())


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))


def pth(what: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(what, buffer)  # noqa: TID251
    return buffer.getvalue()


def planted(mark: Path) -> list[bytes]:
    """The same command in each form in which PyTorch keeps objects."""
    command = Command(mark)
    old = io.BytesIO()
    torch.save({"features.0.0.weight": command}, old, _use_new_zipfile_serialization=False)  # noqa: TID251
    return [
        pth({"features.0.0.weight": command}),
        pth(command),
        old.getvalue(),
        pickle.dumps(command),
        pickle.dumps({"features.0.0.weight": command}, protocol=2),
    ]


def test_a_planted_command_does_run_where_objects_are_unpickled(tmp_path: Path) -> None:
    """Else the tests below would see nothing."""
    for number, content in enumerate(planted(tmp_path / "mark")):
        file = io.BytesIO(content)
        if number < 3:
            torch.load(file, weights_only=False)  # noqa: TID251
        else:
            pickle.load(file)
        (tmp_path / "mark").unlink()


@pytest.mark.parametrize("form", range(5))
@pytest.mark.parametrize("suffix", ["pth", "safetensors"])
def test_a_command_in_the_given_file_is_not_run(tmp_path: Path, form: int, suffix: str) -> None:
    """Not even if its SHA-256 is the one that is expected."""
    mark = tmp_path / "mark"
    entry = give(tmp_path, planted(mark)[form], f"x.{suffix}")
    with refused(names=("efficientnet_b0", "weights")) as caught:
        plan_with("efficientnet_b0", entry)
    assert "\n" not in str(caught.value)
    assert not mark.exists()


def test_a_command_in_the_cache_folder_is_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    cache = tmp_path / "torch/hub/checkpoints"
    cache.mkdir(parents=True)
    for name in (CACHED, "pytorch_model.bin"):
        (cache / name).write_bytes(planted(mark)[0])
    entry = Weights(title="x", licence="x", name=CACHED, sha256="7f5810bc")
    with refused(names=("`fedrepro download efficientnet_b0`", "run")):
        plan_with("efficientnet_b0", entry)
    with refused(names=("weights.efficientnet_b0", "missing")):
        registry.build("efficientnet_b0", SHAPE, 8)
    assert not mark.exists()


def test_efficientnet_starts_from_its_file(tmp_path: Path) -> None:
    torch.manual_seed(1)
    from torchvision.models import efficientnet_b0  # imports PyTorch's compiler

    source = efficientnet_b0(weights=None)
    content = pth(source.state_dict())
    entry = give(tmp_path, content, CACHED)
    for name in ("efficientnet_b0", "efficientnet_b0_redrawn"):
        plan = plan_with(name, entry)
        held = held_by(partition(), dataset())
        data = data_of(dataset(), held, plan.networks.weights_sha256, {})
        assert data["weights_sha256"] == hashlib.sha256(content).hexdigest()
        model = plan.federation.context.net.module
        assert model.body.keeps_weights
        assert torch.equal(model.body[0][0][0].weight, source.features[0][0].weight)
    (tmp_path / FOLDER / CACHED).write_bytes(content + b"x")
    with refused("damaged", key="sha256", names="weights.efficientnet_b0"):
        plan_with("efficientnet_b0", entry)


def test_safetensors_and_names_that_do_not_fit() -> None:
    source = nn.Linear(3, 2)
    saved = {f"part.{key}": value for key, value in source.state_dict().items()}
    others = {name: torch.ones(1) for name in ("head.weight", "head.part.weight", "apart.bias")}
    weights = LearnedWeights("x.safetensors", save({**saved, **others}))
    target = nn.Linear(3, 2)
    load_into(target, "x", weights, "part.")
    assert torch.equal(target.weight, source.weight) and torch.equal(target.bias, source.bias)
    inner = nn.ModuleDict({"part": nn.Linear(3, 2)})  # of the name of what it is a part of
    deep = {f"part.part.{key}": value for key, value in source.state_dict().items()}
    load_into(inner, "x", LearnedWeights("x.pth", pth(deep)), "part.")
    assert torch.equal(inner["part"].weight, source.weight)
    for wrong in (nn.Linear(3, 4), nn.Linear(3, 2, bias=False)):
        with refused(names="weights"):
            load_into(wrong, "x", weights, "part.")
    with refused(names="weights"):
        load_into(target, "x", weights, "other.")


def test_without_a_known_hash_nothing_is_fetched_or_read(tmp_path: Path) -> None:
    spec = Weights(title="x", licence="x", name="x.safetensors", urls=("http://localhost:9/x",))
    with refused(names="weights.x.sha256"):
        fetch_weights("x", spec)
    give(tmp_path, b"content", "x.safetensors")
    digest = hashlib.sha256(b"content").hexdigest()
    for call in (lambda: fetch_weights("x", spec), lambda: read_weights("x", spec)):
        with refused(names=("weights.x.sha256", "x.safetensors", digest)):
            call()


def test_weights_are_fetched_and_checked(tmp_path: Path) -> None:
    content = b"w" * 1000
    digest = hashlib.sha256(content).hexdigest()
    with serving({"/x.pth": content, "/other.pth": b"o" * 1000}) as server:
        spec = Weights(
            title="x",
            licence="x",
            name="x.pth",
            sha256=digest[:8],
            urls=(f"{server.address}/other.pth", f"{server.address}/x.pth"),
        )
        path = fetch_weights("x", spec)
    assert path.read_bytes() == content
    assert fetch_weights("x", spec) == path  # the server is gone
    path.unlink()
    (tmp_path / "archives").mkdir()
    (tmp_path / "archives/x.pth").write_bytes(content)
    assert fetch_weights("x", spec, tmp_path / "archives").read_bytes() == content
    (tmp_path / "archives/x.pth").write_bytes(b"x")
    path.unlink()
    with pytest.raises(UserError, match="expected"):
        fetch_weights("x", spec, tmp_path / "archives")


def test_the_file_fetched_comes_before_the_reader_s_and_each_is_checked(tmp_path: Path) -> None:
    content, other = b"w" * 100, b"o" * 100
    digest = hashlib.sha256(content).hexdigest()
    own = tmp_path / "own.pth"
    spec = Weights(title="x", licence="x", name="x.pth", sha256=digest, path=str(own))
    own.write_bytes(content)
    assert fetch_weights("x", spec) == own and read_weights("x", spec) == (content, digest)
    give(tmp_path, other, "x.pth")
    for call in (fetch_weights, read_weights):
        with refused("damaged", file="weights/x.pth", key="sha256"):
            call("x", spec)
    give(tmp_path, content, "x.pth")
    own.write_bytes(other)
    assert fetch_weights("x", spec) == FOLDER / "x.pth"
    assert read_weights("x", spec) == (content, digest)
    (tmp_path / FOLDER / "x.pth").unlink()
    for call in (fetch_weights, read_weights):
        with refused("damaged", file="own.pth", key="sha256"):
            call("x", spec)


def test_all_stated_digits_of_a_hash_count_and_the_whole_one_is_told(tmp_path: Path) -> None:
    content = b"w" * 100
    digest = hashlib.sha256(content).hexdigest()
    other = "1" if digest[-1] == "0" else "0"
    with serving({"/x": content}) as server:
        spec = Weights(title="x", licence="x", name="x.pth", urls=(f"{server.address}/x",))
        for stated, fits in (
            (digest[:8], True), (digest[:63], True), (digest, True),
            (digest[:63] + other, False), (digest[:8] + other * 9, False),
        ):  # fmt: skip
            spec = spec.model_copy(update={"sha256": stated})
            if fits:
                fetch_weights("x", spec)
                assert read_weights("x", spec) == (content, digest)
                (FOLDER / "x.pth").unlink()
                continue
            with refused(names=stated):
                fetch_weights("x", spec)
            assert not (FOLDER / "x.pth").exists()
            give(tmp_path, content, "x.pth")
            with refused(names=(stated, digest)):
                read_weights("x", spec)
            (FOLDER / "x.pth").unlink()


def test_a_server_with_weights_of_another_size_is_left_for_the_next(tmp_path: Path) -> None:
    content = b"w" * 100
    digest = hashlib.sha256(content).hexdigest()
    (tmp_path / "archives/x.pth").mkdir(parents=True)  # no file
    with serving({"/long": content + b"w", "/none": b"", "/right": content}) as server:
        urls = tuple(f"{server.address}/{path}" for path in ("gone", "long", "none", "right"))
        spec = Weights(title="x", licence="x", name="x.pth", sha256=digest, size=100, urls=urls)
        assert fetch_weights("x", spec, tmp_path / "archives").read_bytes() == content
        assert [path for path, _ in server.asked] == ["/gone", "/long", "/none", "/right"]
        (FOLDER / "x.pth").unlink()
        with pytest.raises(UserError, match=r"404.*has 101 bytes, not 100"):
            fetch_weights("x", spec.model_copy(update={"urls": urls[:2]}))
    assert not [*FOLDER.glob("x*")]


def test_weights_are_part_of_what_a_run_is() -> None:
    bench = load(ROOT)
    models_with = {name: model.weights for name, model in registry.MODELS.items() if model.weights}
    assert models_with == {
        "distilbert": "distilbert",
        "distilbert_redrawn": "distilbert",
        "efficientnet_b0": "efficientnet_b0",
        "efficientnet_b0_redrawn": "efficientnet_b0",
    }
    assert {model: name for model, (name, _) in bench.weights.items()} == models_with
    for name, setting in bench.settings.items():
        method = "fedgo" if setting.byzantine else "fedavg"
        described = bench.run_spec(name, method, 1).description()
        assert ("weights" in described) == (setting.model in models_with)
        if setting.model.startswith("efficientnet"):
            assert described["weights"] == "7f5810bc"
