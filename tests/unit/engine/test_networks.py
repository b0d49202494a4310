"""Networks as functions of their parameters: parts whose names begin with others, and modes."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedrepro.engine import modules, tree
from fedrepro.engine.context import Context, LoadedArtifact
from fedrepro.engine.net import Net, differentiate
from fedrepro.engine.trials import mixes_when_testing
from fedrepro.models.classifier import Classifier
from fedrepro.support.rng import stream
from support.refusals import refused

LAYERS = 12


class Both(nn.Module):
    """A body and a head, and parts whose names begin with theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.header = nn.Linear(4, 4)
        self.body = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.5))
        self.bodyguard = nn.Linear(5, 5)
        self.head = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.bodyguard(self.body(self.header(x))))  # type: ignore[no-any-return]


def given(net: Net) -> Any:
    return net.init(stream(1, "init"))


def x_of(n: int = 6) -> Tensor:
    return torch.randn(n, 4, generator=stream(n, "x"))


def test_parts_are_told_apart_by_whole_names() -> None:
    module = Both()
    module.header.weight.requires_grad_(False)
    module.body[0].bias.requires_grad_(False)
    module.bodyguard.bias.requires_grad_(False)
    net = Net(module)
    params = given(net)
    assert {*net.head(params)} == {
        "head.0.weight", "head.0.bias", "head.2.weight", "head.2.bias"
    }  # fmt: skip
    assert {*net.body(params)} == {
        "header.bias", "body.0.weight", "body.1.weight", "body.1.bias", "body.1.running_mean",
        "body.1.running_var", "bodyguard.weight",
    }  # fmt: skip
    assert net.outputs(params) == 3
    assert {*net.constants("body")} == {"0.bias"}
    assert {*net.constants("bodyguard")} == {"bias"}
    assert {*net.constants()} == {"header.weight", "body.0.bias", "bodyguard.bias"}
    assert net.running_statistics == ["body.1.running_mean", "body.1.running_var"]
    assert {*net.trained} == params.keys() - {*net.running_statistics}
    backwards = dict(reversed(params.items()))
    assert [*net.ordered(backwards)] == [*params] != [*backwards]
    nested = net.trainable({"c": params, "steps": {"n": torch.ones(1)}})
    assert {*nested["c"]} == {*net.trained} and [*nested["steps"]] == ["n"]
    features, output = net.features_and_output(params, x_of())
    assert features.shape == (6, 5) and output.shape == (6, 3)
    wanted = module.head(features)
    torch.testing.assert_close(output, wanted)


@pytest.mark.parametrize("kept", ["1", "10"])
def test_one_of_many_layers_keeps_what_it_has_learned(kept: str) -> None:
    """Layer 1 is not layer 10 or 11, whatever training has done to the module since."""
    layers = [nn.Linear(3, 3) for _ in range(LAYERS)]
    module = Classifier(nn.Sequential(*layers), nn.Linear(3, 2))
    part: Any = layers[int(kept)]
    part.keeps_weights = True
    module.register_buffer("table", torch.arange(3.0))  # nothing draws it
    layers[5].weight.requires_grad_(False)
    before = {name: leaf.detach().clone() for name, leaf in module.named_parameters()}
    net = Net(module)
    for leaf in net.bind(given(net)).values():
        leaf.data.add_(5)
    found, other = (net.init(stream(seed, "init")) for seed in (1, 2))
    assert found.pop("table").tolist() == [0, 1, 2]
    assert [*net.constants()] == ["body.5.weight"] and "body.5.weight" not in found
    assert torch.equal(net.constants()["body.5.weight"], before["body.5.weight"])
    for name, leaf in found.items():
        keeps = name.startswith(f"body.{kept}.")
        assert torch.equal(leaf, before[name]) == keeps, name
        assert torch.equal(leaf, other[name]) == keeps, name


def test_testing_is_a_mode_that_ends() -> None:
    """Without dropout and new statistics; training goes on afterwards, after an error too."""
    net = Net(Both())
    params = given(net)
    bound = net.bind(params)
    x = x_of()
    one, again = net.predict(bound, x), net.predict(bound, x)
    assert torch.equal(one, again) and net.module.training
    assert torch.equal(net.predict(tree.copy(params), x), one)
    assert all(torch.equal(leaf, params[name]) for name, leaf in bound.items())
    with pytest.raises(RuntimeError):
        net.predict(bound, torch.ones(2, 9))
    assert net.module.training
    assert not torch.equal(net(bound, x), net(bound, x))  # dropout
    assert not torch.equal(bound["body.1.running_mean"], params["body.1.running_mean"])


def test_layers_that_draw_do_so_from_the_seed_alone() -> None:
    net, plain = Net(Both()), Net(nn.Linear(4, 3))
    params, x = given(net), x_of()

    def drawn(seed: int) -> Tensor:
        with net.drawing_from(seed):
            return net(net.bind(params), x).detach()

    torch.manual_seed(5)
    before = torch.get_rng_state()
    assert torch.equal(drawn(1), drawn(1)) and not torch.equal(drawn(1), drawn(2))
    assert torch.equal(before, torch.get_rng_state())
    for others in (False, True):
        values = []
        for _ in range(2):
            with plain.drawing_from(3, others):
                values.append(float(torch.rand(())))
        assert (values[0] == values[1]) == others


@pytest.mark.parametrize(
    ("change", "key", "value"),
    [
        (lambda params: params.pop("bias"), "bias", None),
        (lambda params: params.update(more=torch.ones(2, 7)), "more", [7]),
        (lambda params: params.update(bias=torch.ones(2, 1)), "bias", [1]),
    ],
)
def test_parameters_of_another_network_are_refused(
    change: Callable[[Any], None], key: str, value: object
) -> None:
    """For two clients; one number would be spread over a bias of three."""
    net = Net(nn.Linear(4, 3))
    params = tree.stack([given(net)] * 2)
    net.refuse_others(params, "a file", each_client=True)
    change(params)
    with refused(file="a file", key=key, value=value):
        net.refuse_others(params, "a file", each_client=True)


def test_a_twin_has_memory_of_its_own() -> None:
    net = Net(Both())
    graphs: Any = object()
    net.graphs = graphs
    twin = net.twin()
    assert net.graphs is graphs and twin.graphs is None
    params = given(net)
    twin.bind(tree.scale(params, 2.0))
    bound = net.bind(params)
    assert all(torch.equal(leaf, params[name]) for name, leaf in bound.items())
    net.graphs = None
    assert torch.equal(twin.predict(params, x_of()), net.predict(params, x_of()))


def test_what_is_bound_requires_gradients_where_it_is_trained() -> None:
    """Also a part, or several models at once; what was given stays as it is."""
    net = Net(Both())
    params = given(net)
    pair = {"one": params, "other": {"body.1.running_mean": params["body.1.running_mean"]}}
    for what in (params, net.body(params), pair):
        bound = net.bind(what)
        for (name, leaf), (_, before) in zip(tree.named(bound), tree.named(what), strict=True):
            assert leaf.requires_grad == ("running" not in name), name
            assert torch.equal(leaf, before) and leaf.data_ptr() != before.data_ptr()
            assert not before.requires_grad


def test_gradients_are_of_the_leaves_that_can_have_one() -> None:
    """At any depth; on the server, where none requires them, all have one."""
    one, two, still = torch.ones(2), torch.ones(3), torch.ones(4)
    params = {"a": {"x": one.clone().requires_grad_(), "s": still}, "b": two.clone(), "c": {}}
    params["b"].requires_grad_()  # type: ignore[attr-defined]

    def loss(params: Any) -> Tensor:
        return (params["a"]["x"].sum() ** 2 + params["a"]["s"].sum() + 3 * params["b"].sum()) * 1.0

    found = differentiate(loss, params)
    assert [name for name, _ in tree.named(found)] == ["a/x", "b"]
    assert found["a"]["x"].tolist() == [4, 4] and found["b"].tolist() == [3, 3, 3]
    plain = {"a": {"x": one, "s": still}, "b": two}
    with torch.no_grad():
        found = differentiate(loss, plain)
    assert [name for name, _ in tree.named(found)] == ["a/x", "a/s", "b"]
    assert found["a"]["s"].tolist() == [1] * 4 and not one.requires_grad


def test_side_by_side_a_loss_without_a_gradient_is_refused() -> None:
    """As for a client alone: torch.func would return zeros, and nothing would train."""
    params = {"a": torch.ones(2, 3)}
    of_all = torch.func.vmap(lambda params: differentiate(lambda p: (p["a"] ** 2).sum(), params))
    assert of_all(params)["a"].tolist() == [[2.0] * 3] * 2
    with refused(file="loss", names=("gradient", "detach")):
        torch.func.vmap(lambda params: differentiate(lambda p: p["a"].sum().detach(), params))(
            params
        )


def test_a_mini_batch_that_batchnorm_cannot_normalise_is_seen_without_a_trace() -> None:
    net = Net(Both())
    params = given(net)
    bound = net.bind(params)
    state = torch.get_rng_state()
    assert net.refuses_to_train_on(x_of(1)) and not net.refuses_to_train_on(x_of(2))
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(leaf, params[name]) for name, leaf in bound.items())
    assert not Net(nn.Linear(4, 3)).refuses_to_train_on(x_of(1))


@pytest.mark.parametrize("part", ["body", "head"])
def test_a_method_that_splits_a_model_needs_something_to_train_in_both(part: str) -> None:
    module = Both()
    Net(module).require_trained_parts("m")
    for leaf in module.get_submodule(part).parameters():
        leaf.requires_grad_(False)
    with refused(file="method m", key=part):
        Net(module).require_trained_parts("m")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_precision_is_of_training_alone(precision: Any) -> None:
    """Whether the module has the parameters or not; what comes out has their type."""
    net = Net(nn.Sequential(nn.Linear(4, 3)), precision)
    params, x = given(net), x_of()
    exact = x @ params["0.weight"].T + params["0.bias"]
    for what in (net.bind(params), tree.copy(params)):
        output = net(what, x)
        assert output.dtype == torch.float32
        near = torch.allclose(output, exact, rtol=0, atol=1e-5)
        assert near == (precision != "bfloat16") and torch.allclose(output, exact, atol=0.1)
        assert torch.allclose(net.predict(what, x), exact, rtol=0, atol=1e-5)


def test_what_another_run_has_made_is_used_by_client_and_by_row() -> None:
    net, x = Net(nn.Linear(4, 3)), x_of()
    models = [net.init(stream(seed, "init")) for seed in range(3)]
    each = LoadedArtifact(tree.stack(models), net)
    for client, params in enumerate(models):
        assert torch.equal(each.outputs(client, x), net.predict(params, x))
    stored = LoadedArtifact({"x": x}, scaling=lambda x: 2 * x - 1)
    rows = torch.tensor([[0, 5], [3, 3]])
    assert len(stored) == 6 and torch.equal(stored.inputs(rows), 2 * x[rows] - 1)


def test_a_method_s_networks_may_draw_where_the_model_does_not() -> None:
    plain, other = Net(nn.Linear(4, 3)), Net(nn.Sequential(nn.Linear(4, 3), nn.Dropout()))
    for nets, draws in (({}, False), ({"plain": plain}, False), ({"x": plain, "y": other}, True)):
        ctx = Context(net=plain, nets=nets)
        numbers = []
        for _ in range(2):
            with ctx.drawing_from(5):
                numbers.append(float(torch.rand(())))
        assert ctx.draws == draws == (numbers[0] == numbers[1])


# --- what a module holds --------------------------------------------------------------------------
def test_leaves_are_filled_by_name() -> None:
    module = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))
    before = copy.deepcopy(module.state_dict())
    modules.fill(module, {"0.running_var": torch.tensor([3.0, 4.0]), "elsewhere": torch.ones(1)})
    for name, leaf in module.state_dict().items():
        assert torch.equal(leaf, before[name]) == (name != "0.running_var"), name
    assert {*modules.float_buffers(module)} == {"0.running_mean", "0.running_var"}


def test_only_counts_of_a_cumulative_mean_are_floats() -> None:
    """In the type of their statistics; others stay whole numbers, which do not travel."""
    module = nn.Sequential(
        nn.BatchNorm1d(2), nn.BatchNorm1d(2, momentum=None).double(),
        nn.BatchNorm1d(2, momentum=None, track_running_stats=False),
        nn.BatchNorm2d(2, momentum=None),
    )  # fmt: skip
    modules.count_in_floats(module)
    kinds = {name: leaf.dtype for name, leaf in module.named_buffers() if "num_batches" in name}
    assert kinds == {
        "0.num_batches_tracked": torch.int64,
        "1.num_batches_tracked": torch.float64,
        "3.num_batches_tracked": torch.float32,
    }


def test_a_parameter_in_body_and_head_is_named() -> None:
    body = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    head = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    assert modules.tied(Classifier(body, head)) == ""
    head[1].weight = body[1].weight
    assert modules.tied(Classifier(body, head)) == "body.1.weight"
    assert modules.tied(nn.Linear(3, 3)) == ""


def test_what_has_no_shape_yet_is_refused() -> None:
    """Be it a parameter or a buffer."""
    for module in (nn.LazyLinear(3), nn.LazyBatchNorm1d(affine=False)):
        with refused(names="lazy"):
            modules.refuse_unusable(nn.Sequential(nn.Linear(2, 2), module))
    modules.refuse_unusable(Both())


def test_what_a_redrawn_model_does_not_draw_is_as_it_was_given() -> None:
    module = Classifier(nn.Embedding(5, 4), nn.Linear(4, 2))
    module.redrawn = True  # type: ignore[assignment]
    before = module.body.weight.detach().clone()  # type: ignore[union-attr,operator]
    net = Net(module)
    for leaf in net.bind(given(net)).values():
        leaf.data.add_(5)
    assert torch.equal(given(net)["body.weight"], before)


def test_a_tensor_that_is_no_longer_the_module_s_own() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    leaves = modules.leaves_of(module)
    assert all(modules.is_in(module, path, leaf) for path, leaf in leaves.items())
    module[1].running_mean = torch.zeros(2)
    gone = {path for path, leaf in leaves.items() if not modules.is_in(module, path, leaf)}
    assert gone == {"1.running_mean"}


def test_weights_lie_in_orders_that_optimizers_know() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(4, 2), nn.Conv2d(3, 4, 3))
    module[0].to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    module[1].weight = nn.Parameter(torch.arange(8.0).reshape(4, 2).T)
    module[2].weight = nn.Parameter(torch.randn(3, 3, 3, 4).permute(3, 0, 1, 2).transpose(2, 3))
    before = {name: leaf.detach().clone() for name, leaf in module.named_parameters()}
    modules.lay_out(module)
    weights = [layer.weight for layer in module]
    assert weights[0].is_contiguous(memory_format=torch.channels_last)
    assert not weights[0].is_contiguous()
    assert all(weight.is_contiguous() for weight in weights[1:])
    for name, leaf in module.named_parameters():
        assert torch.equal(leaf, before[name]), name


def test_an_error_of_another_kind_than_batchnorm_s_is_not_hidden() -> None:
    class Picky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(1))

        def forward(self, x: Tensor) -> Tensor:
            if len(x) == 1:
                raise ValueError("one sample is too little for me")
            return self.w * x

    assert not Net(Picky()).refuses_to_train_on(x_of(1))
    for module in (
        Picky(),
        nn.ModuleDict({"body": nn.Linear(2, 2)}),
        nn.ModuleDict({"head": Picky()}),
    ):
        for part in ("head", "body"):
            with refused(file=f"model {type(module).__name__}", names=("`body`", "`head`")):
                getattr(Net(module), part)({})


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_outputs_that_depend_on_other_samples_are_seen_at_any_scale(scale: float) -> None:
    class Centred(nn.Module):
        def __init__(self, centre: bool) -> None:
            super().__init__()
            self.centre, self.last = centre, nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            made: Tensor = scale * self.last(x)
            return made - 0.1 * made.mean(0) if self.centre else made

    for centre in (False, True):
        net = Net(Centred(centre))
        given(net)
        assert mixes_when_testing(net, x_of(7)) == centre and net.module.training
