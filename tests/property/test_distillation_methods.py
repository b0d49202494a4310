"""What must hold of FedDF, FedGO, FedGKD+, DaFKD and FedTGP by their definitions."""

import weakref
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fedrepro.check.world import CLASSES, FEATURES, Memory, play
from fedrepro.engine import tree
from fedrepro.engine.context import Context, LoadedArtifact
from fedrepro.engine.net import Net
from fedrepro.engine.round import Federation, begin, context_of, play_round
from fedrepro.engine.tree import Tree
from fedrepro.methods.dafkd import DaFKD
from fedrepro.methods.distilling.losses import kl_divergence
from fedrepro.methods.distilling.weighting import odds
from fedrepro.methods.feddf import BATCH, FedDF
from fedrepro.methods.fedgkd_plus import FedGKDPlus
from fedrepro.methods.fedgo import WEIGHTINGS, FedGO
from fedrepro.methods.fedtgp import class_means
from fedrepro.models.classifier import Classifier
from fedrepro.papers.fedgo.given_byzantine import with_liars
from support.closeness import assert_close
from support.refusals import refused
from support.worlds import federation


def end(world: Federation) -> Tree:
    return play(world)[0]["params"]


def test_feddf_without_server_epochs_is_fedavg_to_the_bit() -> None:
    world = federation("feddf", {"feddf": {"server_epochs": 0}})
    assert_close(end(world), end(federation("fedavg")), 0)
    assert not all(
        torch.equal(end(federation("feddf"))[name], leaf) for name, leaf in end(world).items()
    )


def test_fedgo_uniform_is_feddf() -> None:
    uniform = federation("fedgo", {"fedgo": {"weighting": "uniform"}})
    assert_close(end(uniform), end(federation("feddf")), 0)


def with_equal_critics(world: Federation) -> Federation:
    given = world.context.artifacts["discriminators"]
    alike = tree.apply(lambda leaf: leaf[:1].expand(leaf.shape).clone(), given.tensors)
    every = {**world.context.artifacts, "discriminators": replace(given, tensors=alike)}
    return replace(world, context=replace(world.context, artifacts=every))


class BySize(FedDF):
    """FedDF with weights n_k."""

    def shares(self, logits: Tensor, judged: Tensor, weights: Tensor) -> Tensor:
        return weights[:, None].expand(logits.shape[:2])


def test_fedgo_with_equal_discriminators_counts_samples() -> None:
    by_size = federation("feddf", method=BySize(server_epochs=2))
    assert_close(end(with_equal_critics(federation("fedgo"))), end(by_size), 1e-7)


def test_fedgkd_plus_with_gamma_0_is_feddf() -> None:
    world = federation("fedgkd_plus", {"fedgkd_plus": {"gamma": 0.0}})
    assert_close(end(world), end(federation("feddf")), 1e-12)
    strong = federation("fedgkd_plus", {"fedgkd_plus": {"gamma": 1.0}})
    apart = tree.subtract(end(strong), end(world))
    assert float(tree.square_norm(apart)) > 1e-6


def test_fedgkd_plus_sends_the_mean_of_the_last_models() -> None:
    world = federation("fedgkd_plus", method=FedGKDPlus(models=3, server_epochs=1), rounds=5)
    server, client_states, models = begin(world), Memory(), [world.initial]
    for round in range(5):
        ctx = context_of(world, round, [0])
        past = world.method.broadcast(ctx, server)["past"]
        expected = tree.apply(lambda leaf: leaf.mean(0), tree.stack(models[-3:]))
        assert_close(past, expected)
        server, _ = play_round(world, server, client_states, round)
        models.append(server["params"])


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_weights_of_fedgo_sum_to_one(weighting: str) -> None:
    world = federation("fedgo", {"fedgo": {"weighting": weighting}})
    ctx, server = context_of(world, 0, [0, 2, 5]), begin(world)
    method = world.method
    assert isinstance(method, FedGO)
    logits = torch.randn(
        3, len(ctx.artifacts["unlabelled"]), CLASSES, dtype=torch.float64,
        generator=torch.Generator().manual_seed(1),
    )  # fmt: skip
    judged = server["judged"][ctx.cohort]
    shares = method.shares(logits, judged, ctx.sizes / ctx.sizes.sum())
    torch.testing.assert_close(shares.sum(0), torch.ones_like(shares[0]))
    assert (weighting == "uniform") == bool((shares[0] == shares[1]).all())


def test_a_weighting_that_is_not_known_is_refused() -> None:
    with refused("value", file="method fedgo", key="weighting", value="odd", near="odds"):
        FedGO(weighting="odd")


def test_weights_of_dafkd_sum_to_one_and_are_those_of_its_discriminators() -> None:
    world = federation("dafkd")
    seen: list[tuple[Tensor, Tensor]] = []

    class Watched(DaFKD):
        def shares(self, logits: Tensor, judged: Tensor, weights: Tensor) -> Tensor:
            found = super().shares(logits, judged, weights)
            seen.append((judged, found))
            return found

    server, _, _ = play(replace(world, method=Watched(server_epochs=1)), until=2)
    for judged, found in seen:
        torch.testing.assert_close(found.sum(0), torch.ones_like(found[0]))
        torch.testing.assert_close(found, judged.sigmoid() / judged.sigmoid().sum(0))
    assert len(seen) == 2 and not torch.equal(seen[0][0], seen[1][0])
    before = begin(world)
    for part in ("judge", "generator"):  # both learn
        assert float(tree.square_norm(tree.subtract(server[part], before[part]))) > 0


def test_dafkds_own_distillation_by_hand() -> None:
    """Temperature 10, its square, and a mean over samples and classes (its repository)."""
    method = DaFKD(own_distillation=True)
    teacher, student = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(1))
    p = (teacher / 10).exp() / (teacher / 10).exp().sum(1, keepdim=True)
    q = (student / 10).exp() / (student / 10).exp().sum(1, keepdim=True)
    by_hand = 100 * (p * (p.log() - q.log())).sum() / 15
    found = method.distance(method.pseudo_labels(teacher), student)
    torch.testing.assert_close(found, by_hand)
    plain = DaFKD()
    labels = plain.pseudo_labels(teacher)
    assert torch.equal(plain.distance(labels, student), kl_divergence(teacher.softmax(1), student))
    one, other = (
        federation("dafkd", {"dafkd": {"own_distillation": own}}) for own in (True, False)
    )
    with pytest.raises(AssertionError):
        assert_close(end(one), end(other), 1e-6)


def test_labels_are_made_once_by_teachers_in_testing_mode_and_the_student_follows_them() -> None:
    """With one teacher, whose logits are then the ensemble's, the loss falls."""
    few = federation("feddf", method=FedDF(server_epochs=1, decays=False), cohort=3)
    many = federation("feddf", method=FedDF(server_epochs=40, decays=False), cohort=3)
    after = [play(world, until=1)[0]["distillation_loss"] for world in (few, many)]
    assert 0 <= float(after[1]) < float(after[0])


def batchnorm_world(method: FedDF) -> Federation:
    world = federation("feddf", method=method, cohort=3, rounds=1)
    body = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.Tanh())
    net = Net(Classifier(body, nn.Linear(8, CLASSES)).double())
    # Full mini-batches: a single sample has no variance.
    return replace(world, context=replace(world.context, net=net, batch_size=32))


def test_running_statistics_are_averaged_by_samples_then_move_with_the_student() -> None:
    """A12, by hand: the statistics that the student starts from, and that it has moved."""
    still = batchnorm_world(FedDF(server_epochs=0))
    server, played = play_round(still, begin(still), Memory(), 0)
    ctx = context_of(still, 0, played.cohort)
    name = "body.1.running_mean"
    ends = [
        still.method.client_model(ctx, begin(still), played.updates, place)[name]
        for place in range(3)
    ]
    expected = torch.stack(ends).mul((ctx.sizes / ctx.sizes.sum())[:, None]).sum(0)
    torch.testing.assert_close(server["params"][name], expected)
    assert not torch.equal(ends[0], ends[1])
    moved, _, _ = play(batchnorm_world(FedDF(server_epochs=1)))
    assert not torch.equal(moved["params"][name], server["params"][name])


def test_teachers_do_not_change_while_they_judge() -> None:
    """BatchNorm's statistics of a teacher are those that it was trained to."""
    world = batchnorm_world(FedDF(server_epochs=1))
    server = begin(world)
    _, played = play_round(world, server, Memory(), 0)
    again = [leaf.clone() for leaf in tree.leaves(played.updates["delta"])]
    ctx = context_of(world, 0, played.cohort)
    with torch.no_grad():
        world.method.server_update(ctx, server, played.updates, ctx.sizes / ctx.sizes.sum())
    assert all(map(torch.equal, again, tree.leaves(played.updates["delta"])))


def test_only_the_student_sees_mirrored_images() -> None:
    """An image whose halves differ, and a net that tells them apart."""
    images = torch.zeros(40, 1, 2, 4)
    images[..., :2] = 1
    net = Net(Classifier(nn.Flatten(), nn.Linear(8, 2)))
    ctx = Context(net=net, artifacts={"unlabelled": LoadedArtifact({"x": images})}, flips=True)
    seen: list[Tensor] = []
    handle = net.module.register_forward_hook(lambda module, inputs, out: seen.append(inputs[0]))
    labels = torch.full((40, 2), 0.5)
    FedDF(server_epochs=1).distilled(ctx, net.init(torch.Generator().manual_seed(0)), labels)
    handle.remove()
    left = torch.cat(seen)[:, 0, 0, 0]
    assert 5 < int(left.sum()) < 35
    assert kl_divergence(labels, torch.zeros(40, 2)) == 0


def test_prototypes_are_class_means() -> None:
    features = torch.tensor([[1.0, 0.0], [3.0, 2.0], [5.0, 5.0], [9.0, 9.0]])
    labels, real = torch.tensor([0, 0, 2, 1]), torch.tensor([1, 1, 1, 0])
    found = class_means(features, labels, 3, real)
    assert found["prototypes"].tolist() == [[2, 1], [0, 0], [5, 5]]
    assert found["there"].tolist() == [1, 0, 1]


def test_fedtgp_pulls_from_the_second_round_on() -> None:
    """With nothing to pull it is FedAvg; its first round is so with any strength."""
    weak = federation("fedtgp", {"fedtgp": {"strength": 0.0, "server_epochs": 1}})
    assert_close(end(weak), end(federation("fedavg")), 1e-12)
    strong = federation("fedtgp", {"fedtgp": {"strength": 1.0, "server_epochs": 1}})
    first, _, _ = play(strong, until=1)
    assert_close(first["params"], play(federation("fedavg"), until=1)[0]["params"], 1e-12)
    assert not torch.allclose(end(strong)["head.weight"], end(weak)["head.weight"])


# --- the ensemble, and what is set otherwise ------------------------------------------------------


def fresh_samples() -> LoadedArtifact:
    noise = torch.randn(BATCH + 50, FEATURES, generator=torch.Generator().manual_seed(5))
    return LoadedArtifact({"x": 2 * noise.double()})


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_the_ensemble_on_other_samples_by_hand(weighting: str) -> None:
    """What a table prints as the ensemble's accuracy: critics judge the samples that are asked."""
    world = federation("fedgo", {"fedgo": {"weighting": weighting}})
    server = begin(world)
    _, played = play_round(world, server, Memory(), 0)
    ctx, given = context_of(world, 0, played.cohort), fresh_samples()
    found = world.method.ensemble(ctx, server, played.updates, played.weights, given)
    critics, x = ctx.artifacts["discriminators"], given.tensors["x"]
    assert critics.net is not None
    logits, scores = [], []
    for place, client in enumerate(played.cohort):
        teacher = tree.subtract(server["params"], tree.take(played.updates["delta"], place))
        logits.append(ctx.net.predict(teacher, x))
        d = critics.net.predict(tree.take(critics.tensors, client), x)[:, 0].sigmoid()
        p = logits[-1].softmax(1)
        scores.append(
            {
                "odds": ctx.sizes[place] * d / (1 - d),
                "domain": d,
                "uniform": torch.ones_like(d),
                "variance": logits[-1].var(1, unbiased=False),
                "entropy": (p * p.log()).sum(1).exp(),
            }[weighting]
        )
    shares = torch.stack(scores) / torch.stack(scores).sum(0)
    torch.testing.assert_close(found, (shares[..., None] * torch.stack(logits)).sum(0))


def test_a_byzantine_client_counts_e_times_one_whose_discriminator_says_0() -> None:
    """F.8: its discriminator gives 1 of everything, whatever it was; its classifier is honest."""
    world = federation("fedgo")
    given = world.context.artifacts["discriminators"]
    lying = with_liars(given, frozenset({1, 4}))
    x = fresh_samples().tensors["x"]
    for client in range(6):
        outputs = lying.outputs(client, x)
        assert outputs.shape == (BATCH + 50, 1)
        assert bool((outputs == 1).all()) == (client in (1, 4))
        assert client in (1, 4) or torch.equal(outputs, given.outputs(client, x))
    every = {**world.context.artifacts, "discriminators": lying}
    judged = begin(replace(world, context=replace(world.context, artifacts=every)))["judged"]
    assert (judged[[1, 4]] == 1).all() and (judged[[0, 2, 3, 5]] < 1).all()
    none = torch.stack([torch.ones(3), torch.zeros(3)])
    weights = odds(none, torch.ones(2))
    torch.testing.assert_close(weights[0] / weights[1], torch.full((3,), torch.e))


def test_one_teacher_at_a_time_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 6 clients here, as of 40 with ResNet-18: each is gone when the next one is made."""
    made: list[weakref.ref[Tensor]] = []
    alive: list[int] = []
    ended = FedDF.client_model

    def watched(self: FedDF, ctx: Context, server: Tree, updates: Tree, place: int) -> Tree:
        alive.append(sum(each() is not None for each in made))
        teacher = ended(self, ctx, server, updates, place)
        made.extend(map(weakref.ref, tree.leaves(teacher)))
        return teacher

    monkeypatch.setattr(FedDF, "client_model", watched)
    play(federation("feddf", cohort=6), until=1)
    assert alive == [0] * 6


def test_the_student_may_follow_sgd_as_vgg11_does() -> None:
    """One step on one mini-batch, by hand: the gradient times the rate."""
    world = federation("feddf", method=FedDF())
    ctx = context_of(world, 0, [0])
    n = len(ctx.artifacts["unlabelled"])
    labels = torch.full((n, CLASSES), 1 / CLASSES, dtype=torch.float64)
    x = ctx.artifacts["unlabelled"].tensors["x"]
    start = world.initial
    method = FedDF(
        server_epochs=1, server_batch=n, server_rate=0.1, server_momentum=0.9, decays=False
    )
    free = tree.apply(lambda leaf: leaf.clone().requires_grad_(), start)
    gradient = torch.autograd.grad(kl_divergence(labels, ctx.net(free, x)), tree.leaves(free))
    expected = [
        leaf - 0.1 * slope for leaf, slope in zip(tree.leaves(start), gradient, strict=True)
    ]
    for ours, theirs in zip(
        tree.leaves(method.distilled(ctx, start, labels)), expected, strict=True
    ):
        torch.testing.assert_close(ours, theirs.detach())


def test_half_of_a_run_is_the_whole_one_s_half_where_the_rate_decays_as_there() -> None:
    """Table 12 reads whole runs after 50 of 100 rounds beside runs of 50 rounds."""
    whole = play(federation("feddf", rounds=6), until=3)[0]
    half = federation("feddf", {"feddf": {"decay_rounds": 6}}, rounds=3)
    assert_close(play(half)[0], whole, 0)
    other = play(federation("feddf", rounds=3))[0]
    assert not torch.equal(other["params"]["head.weight"], whole["params"]["head.weight"])


@pytest.mark.parametrize(
    ("key", "value", "names"),
    [
        ("server_momentum", 1.0, ("0", "1")),
        ("decay_rounds", -1, ()),
        ("decay_rounds", 5, ("0", "6")),  # the run has six rounds
    ],
)
def test_wrong_values_are_one_line(key: str, value: float, names: tuple[str, ...]) -> None:
    with refused("value", file="method feddf", key=key, value=value, names=names):
        FedDF(**{key: value}).check(federation("feddf").context)  # type: ignore[arg-type]
