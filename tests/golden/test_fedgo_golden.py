"""FedDisco, FedTGP and FedDF as released, Theorem 3.6 and the schedule of FedGO."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedrepro.engine.tree import Tree
from fedrepro.methods.distilling import prototypes
from fedrepro.methods.distilling.losses import cosine, kl_divergence, pseudo_labels
from fedrepro.methods.distilling.weighting import odds, uniform
from fedrepro.methods.feddisco import coefficients, imbalance


def read(name: str) -> dict[str, Any]:
    text = (Path(__file__).parent / f"{name}.json").read_text(encoding="utf-8")
    golden: dict[str, Any] = json.loads(text)
    return golden


def tensor(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def assert_same(ours: Tensor, theirs: Any, tolerance: float = 1e-6) -> None:
    torch.testing.assert_close(ours, tensor(theirs), rtol=0, atol=tolerance)


DISCO = read("feddisco")


@pytest.mark.parametrize("cohort", [[0, 1, 2, 3], [0, 2], [1, 3]])
def test_feddisco(cohort: list[int]) -> None:
    golden = DISCO["participants_" + "_".join(map(str, cohort))]
    counts = tensor(DISCO["class_counts"])[cohort]
    sizes, distances = counts.sum(1), imbalance(counts)
    assert_same(distances / distances.sum(), golden["kl"]["difference"])
    for a, b in ((0.5, 0.1), (0.5, 0.0), (1.0, 0.1)):
        assert_same(coefficients(sizes, distances, a, b), golden["kl"][f"a{a}_b{b}"])
    assert_same(coefficients(sizes, distances, 0.0, 0.0), golden["size_weights"])


def tgp_net(values: dict[str, Any]) -> Tree:
    return {
        "embedding": tensor(values["embedings.weight"]),
        "hidden": {
            "weight": tensor(values["middle.0.0.weight"]),
            "bias": tensor(values["middle.0.0.bias"]),
        },
        "output": {"weight": tensor(values["fc.weight"]), "bias": tensor(values["fc.bias"])},
    }


def test_fedtgp() -> None:
    """One step of SGD; the released code ran in float32."""
    golden = read("fedtgp")
    shape = (len(golden["client_protos"]), golden["num_classes"], golden["feature_dim"])
    message, there = (
        torch.zeros(shape, dtype=torch.float64),
        torch.zeros(shape[:2], dtype=torch.bool),
    )
    for client, protos in enumerate(golden["client_protos"]):
        for label, values in protos.items():
            message[client, int(label)], there[client, int(label)] = tensor(values), True
    gap = prototypes.margin(message, there)
    assert float(gap) == pytest.approx(golden["margin_used"], abs=1e-6)
    assert float(prototypes.margin(message, there, most=0.5)) == 0.5

    net, labels = tgp_net(golden["tgp_init"]), torch.tensor(golden["labels"])
    assert_same(prototypes.generated(net), golden["generated"])
    batch = tensor(golden["proto_batch"])
    loss = prototypes.contrast(net, batch, labels, gap)
    assert float(loss) == pytest.approx(golden["loss"], abs=1e-6)
    with torch.no_grad():  # as in a server's hook
        gradient = torch.func.grad(prototypes.contrast)(net, batch, labels, gap)
    after = tgp_net(golden["tgp_after_one_sgd_step"])
    rate = golden["lr"]
    assert_same(net["embedding"] - rate * gradient["embedding"], after["embedding"].tolist())
    for layer in ("hidden", "output"):
        for kind, leaf in net[layer].items():
            assert_same(leaf - rate * gradient[layer][kind], after[layer][kind].tolist())

    client = golden["client_loss"]
    term = prototypes.pull(
        tensor(client["rep"]),
        tensor(golden["generated"]),
        torch.tensor(client["labels"]),
        client["lamda"],
    )
    assert float(term) == pytest.approx(client["term"], abs=1e-8)


def test_fedtgp_without_two_classes_has_no_margin() -> None:
    there = torch.tensor([[True, False], [True, False]])
    assert float(prototypes.margin(torch.ones(2, 2, 3), there)) == 0


@pytest.mark.parametrize("temperature", [1, 3])
def test_feddf(temperature: int) -> None:
    """The mean of logits as the teacher: loss and gradient, which the released code clips at 5."""
    golden = read("feddf")
    expected = golden[f"T{temperature}_avg_logits"]
    teachers, x = tensor(golden["teacher_logits"]), tensor(golden["x"])
    labels = pseudo_labels(teachers, uniform(teachers), temperature)

    def loss(weight: Tensor, bias: Tensor) -> Tensor:
        return kl_divergence(labels, x @ weight.T + bias, temperature)

    start = golden["student_init"]
    at = tensor(start["l.weight"]), tensor(start["l.bias"])
    assert float(loss(*at)) == pytest.approx(expected["loss"], abs=1e-9)
    gradient = torch.func.grad(loss, argnums=(0, 1))(*at)
    assert_same(gradient[0], expected["grad"]["l.weight"])
    assert_same(gradient[1], expected["grad"]["l.bias"])


def test_theorem_3_6() -> None:
    """Odds of optimal discriminators weigh by n_k p_k, which knows of no generator."""
    golden = read("fedgo_theorem36")
    judged = torch.logit(tensor(golden["D_k"]))
    weights = odds(judged, tensor(golden["n_k"]))
    assert_same(weights, golden["w_star"])
    densities = tensor(golden["n_k"])[:, None] * tensor(golden["p_k"])
    assert_same(weights, (densities / densities.sum(0)).tolist())


def test_schedule() -> None:
    golden = read("fedgo_schedule")
    rates = [cosine(golden["lr0"], round, golden["T"]) for round in range(golden["T"])]
    assert rates == pytest.approx(golden["per_round_lr"], abs=1e-12)
