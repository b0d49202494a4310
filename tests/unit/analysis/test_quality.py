"""Numbers of synthetic sets against hand-computed ones, and the command on a finished run."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedrepro.analysis import judging
from fedrepro.cli.main import main
from fedrepro.config.loading import load
from fedrepro.config.settings import Evaluator
from fedrepro.data.tensors.samples import Scaling, TensorSamples
from fedrepro.engine.tree import Tree
from fedrepro.models import pretrained
from fedrepro.report.cells import tables
from fedrepro.report.cells.cell import TableCell
from fedrepro.report.cells.search import compute
from fedrepro.report.papers import published
from fedrepro.run.store import load_tree, save_tree
from fedrepro.support import checksummed_json
from fedrepro.support.errors import UserError
from fedrepro.support.files import sha256_of
from fedrepro.support.plugins import Folders
from fedrepro.workflow.checks import check_methods
from support.manifests import follow, write_manifest
from support.synthetic_world import FOLDER, RESULT, RUN, stand_in_copy, write_experiment


def test_the_frechet_distance_is_that_of_two_normal_distributions() -> None:
    random = np.random.default_rng(0)
    one, other = random.normal(size=(40, 5)), random.normal(1, 2, size=(60, 5))
    covariances = [np.cov(each, rowvar=False) for each in (one, other)]
    root = scipy.linalg.sqrtm(covariances[0] @ covariances[1])
    apart = np.square(one.mean(0) - other.mean(0)).sum()
    expected = apart + np.trace(covariances[0] + covariances[1] - 2 * root.real)
    assert judging.frechet(one, other) == pytest.approx(expected, rel=1e-9)
    # One dimension, by hand: means 1 and 4, variances 1 and 4.
    line = np.array([[0.0], [1.0], [2.0]]), np.array([[2.0], [4.0], [6.0]])
    assert judging.frechet(*line) == pytest.approx(9 + (1 - 2) ** 2)
    assert judging.frechet(one, one) == pytest.approx(0, abs=1e-9)
    assert math.isnan(judging.frechet(one[:1], other))


def test_the_frechet_distance_of_fewer_samples_than_features() -> None:
    """Where a square root of the product of covariances is not to be had, its trace still is."""
    random = np.random.default_rng(1)
    one, other = random.normal(size=(4, 9)), random.normal(size=(5, 9))
    found = judging.frechet(one, other)
    turn = np.linalg.qr(random.normal(size=(9, 9)))[0]
    assert judging.frechet(one @ turn, other @ turn) == pytest.approx(found, rel=1e-9)
    flat = np.zeros((3, 9))
    flat[:, 0] = [0, 1, 2]
    assert judging.frechet(flat, flat + 1) == pytest.approx(9)


def test_precision_and_recall_of_points_on_a_line() -> None:
    real = torch.tensor([0.0, 1.0, 2.0, 3.0]).view(-1, 1)
    made = torch.tensor([1.1, 1.2, 1.3, 10.0]).view(-1, 1)
    # The real radii (third nearest) are 3, 2, 2, 3; made ones 8.9, 8.8, 8.7, 8.9.
    assert judging.precision_and_recall(made, real) == (0.75, 1.0)
    # Nearest neighbours: real radii 1, made ones 0.1, 0.1, 0.1, 8.7.
    assert judging.precision_and_recall(made, real, 1) == (0.75, 0.75)
    near = made[:3]
    assert judging.precision_and_recall(near, real, 1) == (1.0, 0.25)
    for few in (2, 3):  # and one more than neighbours is enough
        assert math.isnan(judging.precision_and_recall(made[:few], real)[1])
        assert math.isnan(judging.precision_and_recall(made, real[:few])[0])


def test_diversity_is_the_mean_distance_within_a_class() -> None:
    samples = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 8.0], [1.0, 1.0]])
    labels = torch.tensor([0, 0, 0, 1])
    assert judging.diversity(samples, labels) == pytest.approx({0: (5 + 8 + 5) / 3})
    assert judging.diversity(samples, torch.tensor([2, 0, 0, 2])) == pytest.approx(
        {0: 5, 2: 2**0.5}
    )


def test_a_copy_is_at_distance_0_however_long_it_is() -> None:
    real = 100 + torch.rand(300, 784, generator=torch.Generator().manual_seed(0))
    away, which = judging.nearest(real[[7, 3]].clone(), real)
    assert away.tolist() == [0, 0] and which.tolist() == [7, 3]


def test_large_sets_are_compared_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = torch.rand(7, 3), torch.rand(5, 3)
    whole = judging.distances(one, other)
    monkeypatch.setattr(judging, "CHUNK", 20)
    assert torch.equal(judging.distances(one, other), whole) and whole.shape == (7, 5)


def test_the_attack_knows_copies_and_guesses_else() -> None:
    rng = torch.Generator().manual_seed(0)
    members, others = torch.rand(20, 4, generator=rng), torch.rand(30, 4, generator=rng)
    assert judging.membership(members, members, others) == 1
    assert judging.membership(others, members, others) == 0
    assert judging.membership(members[:5], others, others) == 0.5


def two_blobs(samples: int = 40) -> TensorSamples:
    y = torch.arange(samples) % 2
    x = (2.0 * y - 1).view(-1, 1, 1, 1) + torch.zeros(samples, 1, 2, 2)
    return TensorSamples(x, y, Scaling(None, None))


def test_a_classifier_is_trained_until_it_has_converged() -> None:
    judge, samples = Evaluator(model="twonn", lr=0.01), two_blobs()
    trained = judging.train(samples, 2, judge, 0, 200)
    assert trained.converged and trained.epochs < 200 and trained.loss <= judging.ENOUGH
    assert judging.accuracy(trained.module, samples) == 1
    assert judging.features(trained.module, samples).shape == (40, 200)
    once = judging.train(samples, 2, judge, 0, 1)
    assert (once.epochs, once.converged) == (1, False) and once.loss > trained.loss
    again = judging.train(samples, 2, judge, 0, 1)
    assert again.loss == once.loss != judging.train(samples, 2, judge, 1, 1).loss
    none = TensorSamples(samples.x[:0], samples.y[:0], samples.scaling)
    assert math.isnan(judging.accuracy(trained.module, none))


@pytest.mark.parametrize(
    ("fell", "late", "converged"),
    [
        (0.005, 50, True),
        (0.015, 50, False),
        (0.005, 49, False),
        (-0.5, 50, True),
        (0.015, 49, False),
    ],
)
def test_a_loss_that_falls_by_less_than_a_hundredth_in_fifty_epochs_has_converged(
    fell: float, late: int, converged: bool
) -> None:
    losses = [2.0, *(2.0 * (1 - fell * (epoch + 1) / late) for epoch in range(late))]
    assert judging._converged(losses, learned=2.1) == converged
    assert not judging._converged(losses, learned=0.5)  # it is still at chance


def test_or_until_the_loss_falls_no_more() -> None:
    """One label of ten is wrong, and nothing tells it: the loss stays at that share's entropy."""
    samples = two_blobs()
    wrong = samples.y.clone()
    wrong[:4] = 1 - wrong[:4]
    mislabelled = TensorSamples(samples.x, wrong, samples.scaling)
    trained = judging.train(mislabelled, 2, Evaluator(model="logistic", lr=0.1), 0, 400)
    assert trained.converged and judging.PATIENCE < trained.epochs < 400
    assert trained.loss == pytest.approx(-0.1 * math.log(0.1) - 0.9 * math.log(0.9), rel=0.05)


def test_a_loss_that_is_still_at_chance_has_not_converged() -> None:
    """Images that are much alike keep it there for longer than the patience, and then it falls."""
    samples = two_blobs()
    judge, alike = Evaluator(model="twonn", lr=3e-4), 2e-3 * samples.x + 0.5
    trained = judging.train(TensorSamples(alike, samples.y, samples.scaling), 2, judge, 0, 3000)
    short = judging.train(TensorSamples(alike, samples.y, samples.scaling), 2, judge, 0, 60)
    assert short.loss == pytest.approx(math.log(2), rel=0.05) and not short.converged
    assert trained.epochs > judging.PATIENCE + 60 and trained.loss < 0.1
    hopeless = TensorSamples(torch.zeros_like(samples.x), samples.y, samples.scaling)
    trained = judging.train(hopeless, 2, Evaluator(model="logistic", lr=0.01), 0, 120)
    assert (trained.epochs, trained.converged) == (120, False)


@pytest.mark.parametrize("classes", [2, 10])
def test_chance_is_what_the_labels_shares_alone_give(classes: int) -> None:
    assert judging._entropy(torch.arange(60) % classes) == pytest.approx(math.log(classes))
    assert judging._entropy(torch.tensor([1, 1, 1, 0])) == pytest.approx(
        -0.75 * math.log(0.75) - 0.25 * math.log(0.25)
    )
    assert judging._entropy(torch.zeros(5, dtype=torch.long)) == 0


def test_the_loss_is_that_of_the_last_epoch() -> None:
    """Which need not be the least: here with too large a rate."""
    judge = Evaluator(model="logistic", lr=3.0, batch_size=8)
    rng = torch.Generator().manual_seed(0)
    samples = TensorSamples(
        torch.randn(40, 1, 2, 2, generator=rng), torch.randint(2, (40,), generator=rng),
        Scaling(None, None),
    )  # fmt: skip
    losses = [judging.train(samples, 2, judge, 0, epochs).loss for epochs in range(1, 7)]
    assert losses != sorted(losses, reverse=True) and len({*losses}) == 6


def test_one_bad_epoch_does_not_end_it() -> None:
    falling = [1 / number for number in range(1, 2 * judging.PATIENCE)]
    learned = 2.0
    assert not judging._converged([*falling, 10.0], learned)
    assert judging._converged([*falling, *[10.0] * judging.PATIENCE], learned)
    late = [1.5] * judging.PATIENCE
    assert judging._converged([1.0, 2.0, *late], learned)  # of all before, the least
    assert not judging._converged([], learned) and not judging._converged([0.0101], learned)
    assert judging._converged([5.0, 0.01], learned)


OWN = """
import torch
from torch import nn
def net(shape, outputs):
    frozen, head = nn.Linear(4, 4), nn.Linear(4, outputs)
    nn.init.eye_(frozen.weight), nn.init.zeros_(frozen.bias)
    nn.init.zeros_(head.weight), nn.init.zeros_(head.bias)
    body = nn.Sequential(nn.Flatten(), frozen.requires_grad_(False), nn.Dropout({}))
    made = nn.Sequential()
    made.add_module("body", body), made.add_module("head", head)
    made.keeps_weights = True
    return made
"""


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_orders_and_dropout_follow_from_the_seed_and_what_is_frozen_stays(
    tmp_path: Path, dropout: float
) -> None:
    """With weights of its own, and samples that are all alike where nothing but masks differs."""
    (tmp_path / "net.py").write_text(OWN.format(dropout), encoding="utf-8")
    folders = Folders(root=tmp_path, models=tmp_path)
    judge = Evaluator.model_validate({"model": "net", "lr": 0.1, "batch_size": 16}, context=folders)
    samples = two_blobs()
    if dropout:
        alike = torch.zeros_like(samples.y)
        samples = TensorSamples(torch.ones_like(samples.x), alike, samples.scaling)
    losses = []
    for seed in (0, 1, 1):
        trained = judging.train(samples, 2, judge, seed, 1, folders)
        losses.append(trained.loss)
        state = trained.module.state_dict()
        assert torch.equal(state["body.1.weight"], torch.eye(4))
        assert state["head.weight"].any() and not trained.module.training
    assert losses[1] == losses[2] != losses[0]


def test_the_loss_of_an_epoch_is_the_mean_over_samples() -> None:
    losses = iter([1.0, 5.0])
    batches = [torch.tensor([0, 1, 2]), torch.tensor([3])]
    assert judging._epoch(lambda x, y: next(losses), two_blobs(), batches) == 2


@pytest.fixture
def world(judged_copy: Path) -> Path:
    return judged_copy


def read(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / RESULT).read_text(encoding="utf-8"))
    return found


def test_the_command_judges_a_set(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = read(world)
    numbers = found["numbers"]
    assert (found["samples"], found["classes"], len(found["clients"])) == (50, 10, 4)
    sizes, accuracies = zip(
        *((each["samples"], each["accuracy"]) for each in found["clients"]), strict=True
    )
    assert numbers["accuracy"] == pytest.approx(np.average(accuracies, weights=sizes))
    assert numbers["accuracy_std"] == pytest.approx(np.std(accuracies))
    # Mean images teach the digits, but are all one prototype.
    assert 0.6 < numbers["test_accuracy"] < 0.95 and numbers["one_epoch"] < numbers["accuracy"]
    assert found["training"]["converged"] and found["training"]["loss"] <= judging.ENOUGH
    assert numbers["recognised"] == 1 and numbers["recall"] == 0
    assert numbers["diversity"] < 0.5 and numbers["feature_diversity"] < 0.5
    assert numbers["stand_in"] > numbers["stand_in_of_real"] > 0
    assert numbers["fid"] is None and found["no_fid"]
    assert 0.4 < numbers["membership"] < 0.6
    # A TwoNN of 199,210 numbers to four clients and back; the painter sends a logistic model down.
    assert numbers["fedavg_megabytes"] == pytest.approx(2 * 4 * 4 * 199_210 / 1e6)
    sums, counts, model = 10 * 784, 10, 7850
    assert numbers["megabytes"] == pytest.approx(4 * 4 * (2 * model + sums + counts) / 1e6)
    before = (world / RESULT).read_bytes()
    capsys.readouterr()
    assert main(["quality", *RUN]) == 0
    assert capsys.readouterr().out == f"{RESULT}\n"
    assert (world / RESULT).read_bytes() == before


def test_the_megabytes_of_a_run_that_ended_early_are_per_round_that_it_played(world: Path) -> None:
    numbers = read(world)["numbers"]
    manifest = json.loads((world / FOLDER / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["rounds_done"] == manifest["run"]["rounds"] == 2
    sent = {key: manifest[key] // 2 for key in ("bytes_down", "bytes_up")}
    early = {"rounds_done": 1, "stopped": "by its measure", **sent}
    write_manifest(world / FOLDER, {**manifest, **early})
    assert main(["quality", *RUN]) == 0
    assert read(world)["numbers"] == numbers


def test_a_search_scores_sets_on_validation_samples(
    painted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that clients held out for it; its test samples are others."""
    root = stand_in_copy(painted, tmp_path, monkeypatch)
    search = """\
search:
  grid:
    title: Batches
    setting: digits
    seeds: {demo: [1]}
    validation: 0.2
    metric: {quality: accuracy}
    methods: [{method: painter, keys: {batch_size: [100]}}]
"""
    write_experiment(root, **{"figures:\n": f"{search}figures:\n"})
    bench = load(root)
    target = bench.search("fedevg", "grid", "demo")
    (run,) = target.runs
    assert [*target.analyses] == [run.analysis("quality")]
    check_methods(bench)  # not refused for training no classifier
    names = (run.setting, run.method, "--seed", "1")
    assert main(["run", *names]) == 0
    (unjudged,) = compute(bench, target)
    assert unjudged.selected is None and unjudged.tried[0].validation.hole
    assert main(["quality", *names]) == 0
    numbers = json.loads((root / run.analysis("quality")).read_text())["numbers"]

    with np.load(bench.setting(run.setting).partition_path(1)) as arrays:
        kept = np.split(arrays["validation"], arrays["validation_ends"][:-1])
    x, y = (np.load(root / f"results/data/mnist5k/train_{part}.npy") for part in "xy")
    made, _ = load_tree(root / run.folder / "model.safetensors")
    bytes_of = (made["x"] * 255).round().to(torch.uint8)
    unit = Scaling(None, None)
    judge = Evaluator(model="twonn", epochs=60, real_epochs=1)
    student = judging.train(TensorSamples(bytes_of, made["y"], unit), 10, judge, 1, 60).module
    each = [
        judging.accuracy(
            student, TensorSamples(torch.from_numpy(x[own]), torch.from_numpy(y[own]), unit)
        )
        for own in kept
    ]
    expected = np.average(each, weights=[len(own) for own in kept])
    (judged,) = compute(bench, target)
    (tried,) = judged.tried
    assert judged.selected == 0
    assert tried.validation.mean == pytest.approx(100 * expected)
    assert tried.test.mean == pytest.approx(100 * numbers["accuracy"])
    assert tried.validation.mean != tried.test.mean


def test_the_nearest_pairs_are_kept_as_images(world: Path) -> None:
    pairs, _ = load_tree(world / RESULT.with_suffix(".pairs.safetensors"))
    made, real = pairs["made"].float() / 255, pairs["real"].float() / 255
    assert made.shape == real.shape == (10, 1, 28, 28)
    described = read(world)["pairs"]
    distances = (made - real).flatten(1).norm(dim=1).tolist()
    kept = [pair["distance"] for pair in described]
    assert distances == pytest.approx(kept, abs=0.1) and kept == sorted(kept)
    train = np.load(world / "results/data/mnist5k/train_x.npy")
    assert (train[[pair["real"] for pair in described]] == pairs["real"].numpy()).all()


def cells_of(root: Path, item: str) -> list[TableCell]:
    workbench = load(root)
    found = tables.compute(workbench, workbench.table("fedevg", item), published.load(root))
    return list(found.cells)


def test_tables_take_their_numbers_from_it(world: Path) -> None:
    accuracy, spread = cells_of(world, "table_4_2")
    numbers = read(world)["numbers"]
    assert accuracy.result.mean == pytest.approx(100 * numbers["accuracy"])
    assert accuracy.printed is not None and accuracy.printed.mean == 70.94
    assert accuracy.verdict is not None and accuracy.verdict.word != "not comparable"
    assert spread.result.mean == pytest.approx(100 * numbers["accuracy_std"])
    assert spread.printed is None and spread.verdict is None


def test_no_stand_in_stands_in_a_printed_cell_nor_is_held_against_an_fid(world: Path) -> None:
    fid, stand_in = cells_of(world, "table_4_4")
    assert fid.result.hole and fid.result.mean is None and fid.printed is not None
    assert stand_in.result.mean == pytest.approx(read(world)["numbers"]["stand_in"])
    assert stand_in.printed is None and stand_in.difference is None
    # A real one is shown beside the printed number, and not judged by it (item 40).
    found = read(world)
    found["numbers"]["fid"] = 124.0
    checksummed_json.write(world / RESULT, found, checksummed_json.of_results(RESULT))
    fid, _ = cells_of(world, "table_4_4")
    assert fid.result.mean == 124 and fid.verdict is not None
    assert fid.difference is None and "item 40" in fid.verdict.why
    assert fid.verdict.word == fid.verdict.basis == "not comparable"


class TinyInception(nn.Module):
    """What FIDs look through, small: the same parts and the same call, and buffers of all kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 5, 5)
        self.norm = nn.BatchNorm2d(4)
        self.AuxLogits: nn.Module | None = nn.Linear(4, 1000)
        self.fc: nn.Module = nn.Linear(4, 1000)

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[1:] == (3, 40, 40) and not self.training
        return self.fc(self.norm(self.first(x)).abs().mean((2, 3)))  # type: ignore[no-any-return]


def test_an_fid_comes_from_the_file_of_weights(
    world: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the way from a .pth as torchvision publishes it to the table's cell."""
    monkeypatch.setattr("torchvision.models.inception_v3", lambda **options: TinyInception())
    monkeypatch.setattr(pretrained, "INCEPTION_SIDE", 40)
    torch.manual_seed(0)
    network = TinyInception().eval()
    file = world / "results/downloads/weights/inception_v3_google-0cc3c7bd.pth"
    file.parent.mkdir(parents=True)
    torch.save(network.state_dict(), file)  # noqa: TID251 (as its authors save it)
    write_experiment(world, **{"evaluator: {": "evaluator: {fid: true, "})
    assert "expected 0cc3c7bd" in refused(capsys)
    catalogue = world / "config/datasets.yaml"
    text = catalogue.read_text().replace("sha256: 0cc3c7bd", f"sha256: {sha256_of(file)}")
    catalogue.write_text(text)
    assert main(["quality", *RUN]) == 0
    found = read(world)
    assert found["no_fid"] == ""

    def seen(images: Tensor) -> Any:
        larger = functional.interpolate(
            images.float().expand(-1, 3, -1, -1) / 255, (40, 40), mode="bilinear", antialias=True
        )
        network.fc = nn.Identity()
        with torch.no_grad():
            return network(2 * larger - 1).double().numpy()

    left, _ = load_tree(world / FOLDER / "model.safetensors")
    test = np.load(world / "results/data/mnist5k/test_x.npy")
    ours, theirs = seen((left["x"] * 255).round()), seen(torch.from_numpy(test))
    assert len(theirs) == 1000  # the whole test set (item 40)
    roots = scipy.linalg.sqrtm(np.cov(ours.T) @ np.cov(theirs.T)).real
    expected = np.square(ours.mean(0) - theirs.mean(0)).sum()
    expected += np.trace(np.cov(ours.T) + np.cov(theirs.T) - 2 * roots)
    assert found["numbers"]["fid"] == pytest.approx(expected, rel=1e-3)
    fid, _ = cells_of(world, "table_4_4")
    assert fid.result.mean == pytest.approx(expected, rel=1e-3)


def test_what_was_judged_of_another_run_counts_for_nothing(world: Path) -> None:
    found = read(world)
    found["of"] = dict.fromkeys(found["of"], "0" * 64)
    checksummed_json.write(world / RESULT, found, checksummed_json.of_results(RESULT))
    cell, _ = cells_of(world, "table_4_2")
    assert cell.result.hole and cell.result.mean is None and cell.verdict is None


@pytest.mark.parametrize(
    "change",
    [{"numbers": {"accuracy": "high"}}, {"numbers": [1]}, {"classes": "ten"}, {"classes": 0}],
)
def test_a_damaged_file_is_one_line(world: Path, change: dict[str, Any]) -> None:
    (key,) = change
    checksummed_json.write(
        world / RESULT, read(world) | change, checksummed_json.of_results(RESULT)
    )
    with pytest.raises(UserError, match=rf"seed1\.json: damaged: {key}: expected"):
        cells_of(world, "table_4_2")
    (world / RESULT).write_text("{")
    with pytest.raises(UserError, match="damaged"):
        cells_of(world, "table_4_2")


def refused(capsys: pytest.CaptureFixture[str], *run: str) -> str:
    """The one line that the command says."""
    capsys.readouterr()
    assert main(["quality", *(run or RUN)]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    return line


def test_what_is_refused(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_experiment(world, **{"    evaluator: {model: twonn, epochs: 60, real_epochs: 1}\n": ""})
    assert "fedevg/digits: evaluator: " in refused(capsys)
    write_experiment(world, **{"model: twonn": "model: twon"})
    line = refused(capsys)
    assert "settings.digits.evaluator.model: 'twon'" in line and "'twonn'" in line
    write_experiment(world, **{"real_epochs: 1": "real_epochs: 0"})
    assert "evaluator.real_epochs: 0" in refused(capsys)
    write_experiment(world)
    fedavg = ("fedevg/digits", "fedavg", "--seed", "1")
    assert "fedrepro run fedevg/digits fedavg --seed 1" in refused(capsys, *fedavg)
    assert main(["run", *fedavg]) == 0
    assert "model.safetensors: fedavg " in refused(capsys, *fedavg)
    write_experiment(world, **{", test_fraction: 0.2": ""})
    assert main(["run", *RUN]) == 0
    assert "test_fraction: missing" in refused(capsys)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (lambda left: {**left, "x": left["x"] + 0.5}, ("images",)),
        (lambda left: {**left, "x": left["x"] * math.nan}, ("images",)),
        (lambda left: {**left, "y": left["y"] + 1}, ("label", "0", "9")),
        (lambda left: {**left, "y": left["y"][:-1]}, ("(50, 1, 28, 28)", "(49, 1, 28, 28)")),
        (lambda left: {"x": left["x"]}, ("painter",)),
    ],
)
def test_sets_that_are_none(
    world: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Tree], Tree],
    names: tuple[str, ...],
) -> None:
    model = world / FOLDER / "model.safetensors"
    left, facts = load_tree(model)
    save_tree(model, change(left), facts)
    follow(world / FOLDER, "model.safetensors")
    line = refused(capsys)
    assert "model.safetensors: " in line and all(name in line for name in names)


@pytest.mark.parametrize("words", [(), ("--through", "last", "last", "last")], ids=str)
def test_a_set_has_no_landscape(
    world: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    """Its images and labels are no weights: the model's own would be drawn instead."""
    capsys.readouterr()
    assert main(["landscape", *RUN, *words]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and "seed1: painter " in line
    assert not (world / "results/landscapes").exists()
