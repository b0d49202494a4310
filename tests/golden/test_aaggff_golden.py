"""AAggFF and the rules it is compared with, against the papers' equations and the released code.

Everything that decides from losses goes through the replay.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from fedrepro.cli.main import main
from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.descent import descend
from fedrepro.engine.method import Method
from fedrepro.engine.net import Net
from fedrepro.engine.steps import Steps
from fedrepro.engine.tree import Tree
from fedrepro.measures import over_clients
from fedrepro.methods.adaptive_weighting import linear
from fedrepro.methods.adaptive_weighting.responses import responses
from fedrepro.methods.adaptive_weighting.rule import LOSS, Decider, Observed
from fedrepro.methods.fedmgda import FedMGDA
from fedrepro.methods.propfair import PropFair
from fedrepro.methods.qfedavg import QFedAvg
from fedrepro.models.classifier import Classifier
from fedrepro.papers.aaggff.replay import Played, play, rule_of

HERE = Path(__file__).parent
AAGGFF = json.loads((HERE / "aaggff.json").read_text())
FAIR = json.loads((HERE / "fair_baselines.json").read_text())
CDFS = ("weibull", "exponential", "frechet", "normal", "gumbel", "logistic")


def name_of(case: dict[str, Any]) -> str:
    return f"{CDFS[case['cdf_code']]}-{case['K']}" if "cdf_code" in case else str(case["K"])


def observed(case: dict[str, Any]) -> list[Observed]:
    clients = case["K"]
    everyone = [list(range(clients))] * len(case["losses"])
    sizes = np.array(case.get("n", np.ones(clients)), dtype=np.float64)
    return [
        Observed(round, clients, np.array(chosen), np.array(losses)[chosen], sizes[chosen])
        for round, (losses, chosen) in enumerate(
            zip(case["losses"], case.get("selected", everyone), strict=True)
        )
    ]


def played(rule: Decider, case: dict[str, Any]) -> list[Played]:
    return list(play(rule, case["K"], observed(case)))


def decisions(rounds: list[Played]) -> np.ndarray:
    return np.array([each.decision.memory["decision"] for each in rounds])


def weights(rounds: list[Played]) -> np.ndarray:
    return np.array([each.decision.weights for each in rounds])


@pytest.mark.parametrize("case", AAGGFF["S"], ids=name_of)
def test_aaggff_s(case: dict[str, Any]) -> None:
    cdf = {"cdf": CDFS[case["cdf_code"]]}
    paper = played(rule_of("aaggff_s", "paper", cdf), case)
    assert decisions(paper) == pytest.approx(np.array(case["paper_eq7_exact"]), abs=1e-12)
    assert decisions(paper) == pytest.approx(np.array(case["paper_eq7_slsqp"]), abs=1e-7)
    assert (weights(paper) == decisions(paper)).all()
    released = decisions(played(rule_of("aaggff_s", "released", cdf), case))
    assert released == pytest.approx(np.array(case["official_formula_exact"]), abs=1e-12)
    assert released == pytest.approx(np.array(case["official_f64_osqp_tight"]), abs=1e-12)
    assert released == pytest.approx(np.array(case["official_asis_f32_osqp"]), abs=1e-6)


@pytest.mark.parametrize("case", AAGGFF["D"], ids=name_of)
def test_aaggff_d(case: dict[str, Any]) -> None:
    cdf = {"cdf": CDFS[case["cdf_code"]]}
    paper = played(rule_of("aaggff_d", "paper", cdf), case)
    assert decisions(paper) == pytest.approx(np.array(case["paper_eq12"]), abs=1e-12)
    assert weights(paper) == pytest.approx(np.array(case["paper_eq95_selected"]), abs=1e-12)
    released = played(rule_of("aaggff_d", "released", cdf), case)
    assert decisions(released) == pytest.approx(np.array(case["official_f64"]), abs=1e-12)
    assert weights(released) == pytest.approx(np.array(case["official_f64_selected"]), abs=1e-12)
    assert decisions(released) == pytest.approx(np.array(case["official_asis_f32"]), abs=1e-6)


@pytest.mark.parametrize("case", AAGGFF["D"], ids=name_of)
def test_estimates_and_gradients_of_aaggff_d(case: dict[str, Any]) -> None:
    """Equations 10 and 11."""
    rule = rule_of("aaggff_d", "paper", {"cdf": CDFS[case["cdf_code"]]})
    for number, (seen, _, made) in enumerate(played(rule, case)):
        response = responses(seen.losses, CDFS[case["cdf_code"]], 0.0, case["C"])
        estimated = linear.estimate(response, case["C"], float(response.mean()))
        whole = estimated.whole(seen.cohort, seen.clients)
        assert whole == pytest.approx(np.array(case["paper_r_breve"][number]), abs=1e-12)
        assert made.gradient is not None
        gradient = linear.Gradient(made.gradient, made.elsewhere).whole(seen.cohort, seen.clients)
        assert gradient == pytest.approx(np.array(case["paper_g_breve"][number]), abs=1e-12)


@pytest.mark.parametrize("case", AAGGFF["D"][:2] + AAGGFF["S"][:2], ids=name_of)
@pytest.mark.parametrize("kind", ["csv", "parquet", "npy"])
def test_the_command_replays_files(
    case: dict[str, Any], kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def written(name: str, values: list[Any]) -> str:
        path = tmp_path / f"{name}.{kind}"
        table = pd.DataFrame(values).rename(columns=str)
        if kind == "csv":
            table.to_csv(path, index=False)
        elif kind == "parquet":
            table.to_parquet(path)
        else:
            np.save(path, table.to_numpy())
        return str(path)

    rule, key = ("aaggff_d", "paper_eq95_selected")
    arguments = ["--losses", written("losses", case["losses"]), "--cdf", CDFS[case["cdf_code"]]]
    if "selected" in case:
        arguments += ["--participants", written("participants", case["selected"])]
    else:
        rule, key = "aaggff_s", "paper_eq7_exact"
    out = tmp_path / "out"
    assert main(["replay", rule, *arguments, "--out", str(out), "--format", "parquet"]) == 0
    clients, rounds = (pd.read_parquet(out / f"{name}.parquet") for name in ("clients", "rounds"))
    expected = np.array(case[key])
    assert clients["weight"].to_numpy() == pytest.approx(expected.ravel(), abs=1e-7)
    assert len(rounds) == case["T"]
    assert (rounds["regret"] <= rounds["bound"]).all()
    assert f"{rounds['regret'].iloc[-1]:.6g}" in capsys.readouterr().out


@pytest.mark.parametrize("case", FAIR["afl"], ids=name_of)
def test_afl(case: dict[str, Any]) -> None:
    found = weights(played(rule_of("afl", "paper", {"lr": case["step"]}), case))
    for key in ("official", "reference_init_uniform"):
        assert found == pytest.approx(np.array(case[key]), abs=1e-12)


@pytest.mark.parametrize("case", FAIR["term"], ids=name_of)
def test_term(case: dict[str, Any]) -> None:
    paper = weights(played(rule_of("term", "paper", {"tilt": case["tilt"]}), case))
    assert paper == pytest.approx(np.array(case["paper_n_weighted"]), abs=1e-12)
    released = weights(played(rule_of("term", "released", {"tilt": case["tilt"]}), case))
    assert released == pytest.approx(np.array(case["official"]), abs=1e-12)


@pytest.mark.parametrize("case", FAIR["qfedavg"], ids=name_of)
def test_qfedavg_coefficients(case: dict[str, Any]) -> None:
    one = {"K": case["K"], "losses": [case["losses"]]}
    found = weights(played(rule_of("qfedavg", "released", {"q": case["q"]}), one))[0]
    assert found == pytest.approx(np.array(case["official_p_logged"]), abs=1e-12)


class Vector(nn.Module):
    """Parameters that are one vector."""

    def __init__(self, values: list[float]) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(values, dtype=torch.float64))


def moved(method: Method, case: dict[str, Any], lr: float) -> tuple[Tree, list[float]]:
    """Where the server goes from w0 when clients report w_local, and the weights."""
    start = torch.tensor(case["w0"], dtype=torch.float64)
    local = torch.tensor(case["w_local"], dtype=torch.float64)
    clients = len(local)
    ctx = Context(
        net=Net(Vector(case["w0"])),
        clients=clients,
        lr=lr,
        schedule=lambda round: lr,
        cohort=torch.arange(clients),
        sizes=torch.ones(clients, dtype=torch.float64),
    )
    server = method.init_server(ctx, {"w": start})
    losses = torch.tensor(case.get("losses", [1.0] * clients), dtype=torch.float64)
    updates = {"delta": {"w": start - local}, LOSS: losses}
    chosen, server = method.aggregation_weights(ctx, server, updates)
    return method.server_update(ctx, server, updates, chosen), chosen.tolist()


@pytest.mark.parametrize("case", FAIR["qfedavg"], ids=name_of)
@pytest.mark.parametrize("fidelity", ["paper", "released"])
def test_qfedavg_step(case: dict[str, Any], fidelity: str) -> None:
    """Clients of one size: both readings."""
    method: Method = QFedAvg(q=case["q"])
    method = method.as_released() if fidelity == "released" else method
    server, _ = moved(method, case, 1 / case["lipschitz"])
    for key in ("official_w", "reference_w"):
        assert server["params"]["w"].tolist() == pytest.approx(case[key], abs=1e-12)


@pytest.mark.parametrize("case", FAIR["fedmgda"], ids=name_of)
def test_fedmgda(case: dict[str, Any]) -> None:
    server, chosen = moved(FedMGDA(radius=case["eps"]), case, 0.1)
    assert server["params"]["w"].tolist() == pytest.approx(case["reference_w"], abs=1e-8)
    assert chosen == pytest.approx(case["reference_p"], abs=1e-8)
    assert server["params"]["w"].tolist() == pytest.approx(case["official_w"], abs=3.2e-6)
    assert chosen == pytest.approx(case["official_p"], abs=3.2e-6)


class Fixed:
    """Samples given in the file."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.x = torch.tensor(case["X"], dtype=torch.float64)
        self.y = torch.tensor(case["Y"])

    def at(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.x[rows], self.y[rows]


@pytest.mark.parametrize("case", FAIR["propfair"], ids=lambda case: str(case["M"]))
def test_propfair(case: dict[str, Any]) -> None:
    module = Classifier(nn.Flatten(), nn.Linear(2, 3)).double()
    ctx = Context(net=Net(module), lr=case["lr"])
    start = {
        "head.weight": torch.tensor(case["w0"], dtype=torch.float64),
        "head.bias": torch.tensor(case["b0"], dtype=torch.float64),
    }
    steps = Steps(Fixed(case), [torch.arange(len(case["Y"]))], case["batch"], {})
    method = PropFair(baseline=case["M"])
    params, _ = descend(ctx, method.gradient, {"params": start}, {}, start, steps)
    expected = {"head.weight": case["official_w"], "head.bias": case["official_b"]}
    for name, leaf in tree.named(params):
        torch.testing.assert_close(
            leaf, torch.tensor(expected[name], dtype=torch.float64), rtol=0, atol=1e-12
        )


@pytest.mark.parametrize("case", FAIR["summary_stats"], ids=name_of)
def test_summary_statistics(case: dict[str, Any]) -> None:
    values, sizes = np.array(case["values"]), np.array(case["n_test"], dtype=np.float64)
    official = case["official"]
    assert over_clients.average(values, sizes) == pytest.approx(official["avg"], abs=1e-12)
    assert over_clients.lowest(values, sizes) == pytest.approx(official["bottom10p_avg"], abs=1e-12)
    assert over_clients.highest(values, sizes) == pytest.approx(official["top10p_avg"], abs=1e-12)
    assert over_clients.gini(values) / 100 == pytest.approx(official["gini"], abs=1e-12)
