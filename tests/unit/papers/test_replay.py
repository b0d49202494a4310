"""Replays: what goes in, what comes out, and what is refused with one line."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedrepro.cli.main import main
from fedrepro.methods.adaptive_weighting.rule import Observed
from fedrepro.papers.aaggff.loss_log import read_log
from fedrepro.papers.aaggff.replay import best_fixed, play, replay, rule_of
from support.refusals import Fault, refused

RULES = ("aaggff_s", "aaggff_d", "afl", "term", "qfedavg")


def log(rounds: list[list[float]], cohorts: list[list[int]] | None = None, clients: int = 0):  # type: ignore[no-untyped-def]
    for round, losses in enumerate(rounds):
        cohort = np.array(cohorts[round] if cohorts else range(len(losses)))
        total = clients or len(losses)
        yield Observed(round, total, cohort, np.array(losses, dtype=float), np.ones(len(losses)))


def weights(rule: str, losses: list[float], clients: int = 0, **values: object) -> list[float]:
    played = play(rule_of(rule, "paper", values), clients or len(losses), log([losses]))
    return list(next(played).decision.weights)


@pytest.mark.parametrize("fidelity", ["paper", "released"])
@pytest.mark.parametrize("rule", RULES)
def test_one_client_gets_all(rule: str, fidelity: str) -> None:
    result = replay(rule_of(rule, fidelity), 1, log([[0.5], [0.0], [2.0]]))
    assert result.clients["weight"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("losses", [[0.0] * 3, [0.7] * 3, [1e300] * 3, [1e-300] * 3])
def test_equal_losses_give_equal_weights(rule: str, losses: list[float]) -> None:
    assert weights(rule, losses) == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("cdf", ["weibull", "frechet", "normal"])
def test_a_client_without_loss_gets_the_least(rule: str, cdf: str) -> None:
    values = {"cdf": cdf} if rule.startswith("aaggff") else {}
    found = weights(rule, [0.0, 1.0, 2.0], **values)
    assert found[0] < found[1] < found[2]


def test_a_sample_of_one_teaches_nothing() -> None:
    result = replay(rule_of("aaggff_d"), 4, log([[3.0], [0.1]], [[2], [0]], clients=4))
    assert result.clients["weight"].tolist() == [1, 1]
    assert result.decision == pytest.approx([0.25] * 4)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
def test_a_loss_that_is_none_is_refused_by_name(rule: str, bad: float) -> None:
    with refused(file="round 2: client 1", key="loss"):
        replay(rule_of(rule), 2, log([[1.0, 2.0], [1.0, bad]]))


@pytest.mark.parametrize("rule", ["aaggff_s", "afl"])
def test_rules_for_all_clients_refuse_a_sample(rule: str) -> None:
    with refused(key="participants", value=2, names=("3", "clients", "aaggff_d")):
        replay(rule_of(rule), 3, log([[1.0, 2.0]], [[0, 2]], clients=3))


@pytest.mark.parametrize(
    ("rule", "values", "fault"),
    [
        (
            "aaggff_s",
            {"lower": 0.5, "upper": 0.2},
            {"key": "upper", "value": 0.2, "names": "upper"},
        ),
        (
            "aaggff_d",
            {"lower": 0.5, "upper": 0.5},
            {"key": "upper", "value": 0.5, "names": "upper"},
        ),
        ("aaggff_s", {"lower": 0.5}, {"key": "lower", "value": 0.5, "names": "lower"}),
        ("aaggff_d", {"lower": 1.5}, {"key": "lower", "value": 1.5, "names": ("1", "lower")}),
        ("aaggff_s", {"lower": -0.1}, {"key": "lower", "value": -0.1, "names": ("0", "lower")}),
        ("aaggff_s", {"upper": "much"}, {"key": "upper", "value": "much", "names": "upper"}),
        ("aaggff_s", {"cdf": "weibul"}, {"key": "cdf", "value": "weibul", "names": "'weibull'"}),
        ("aaggff_s", {"alpha": 1.0}, {"key": "hyperparameter", "value": "alpha"}),
        ("aagff_s", {}, {"key": "rule", "value": "aagff_s", "names": ("'aaggff_s'", "mean")}),
        ("fedmgda", {}, {"key": "rule", "names": "losses"}),
        ("fedavg", {}, {"key": "rule", "names": "losses"}),
    ],
)
def test_rules_that_make_no_sense(rule: str, values: dict[str, object], fault: Fault) -> None:
    with refused(**fault):
        replay(rule_of(rule, "paper", values), 3, log([[1.0, 2.0, 3.0]]))


def test_a_name_and_an_option_may_say_the_same_fidelity() -> None:
    released = rule_of("term@released")
    for name, fidelity in (("term", "released"), ("term@released", "released")):
        assert rule_of(name, fidelity) == released != rule_of("term")
    assert rule_of("term") == rule_of("term@paper", "paper")
    for said, given in (("paper", "released"), ("released", "paper")):
        with refused(key="fidelity", value=given, names=said):
            rule_of(f"term@{said}", given)


def test_regret_is_reckoned_after_every_round() -> None:
    rng = np.random.default_rng(0)
    losses = rng.exponential(size=(20, 4)).tolist()
    result = replay(rule_of("aaggff_s"), 4, log(losses))
    assert not result.linearised and (result.rounds["regret"] >= -1e-9).all()
    assert (result.rounds["regret"] <= result.rounds["bound"]).all()
    short = replay(rule_of("aaggff_s"), 4, log(losses[:7]))
    assert short.rounds["regret"].iloc[-1] == pytest.approx(result.rounds["regret"].iloc[6])
    # The released code has no theorem, and rules without decision losses no regret.
    released = replay(rule_of("aaggff_s", "released"), 4, log(losses)).rounds
    assert released["bound"].isna().all() and released["regret"].notna().all()
    assert replay(rule_of("afl"), 4, log(losses)).rounds["regret"].isna().all()


def test_no_fixed_decision_is_better_than_the_best() -> None:
    """It is Cover's portfolio: log(1 + <p, r>) is log <p, 1 + r>, as p sums to 1.

    By his condition a decision is the best if no client's mean of (1 + r_k) / <p, 1 + r> is above
    1, which also bounds by how much another one can be better.
    """
    random = np.random.default_rng(4)
    for scale in ([1.0, 1.1, 0.6], [1.0, 1.0, 0.1]):
        returns = 1 + random.exponential(size=(30, 3)) * scale
        best, least = best_fixed(returns - 1)
        means = (returns / (returns @ best)[:, None]).mean(0)
        assert 30 * (means.max() - 1) < 1e-8 and best.sum() == pytest.approx(1)
        assert least == pytest.approx(-np.log(returns @ best).sum()) and 0.1 < best.max() < 0.99


def test_a_replayed_log_has_what_each_client_got_and_what_was_decided() -> None:
    """A rule for samples: weights are over those that took part, coefficients over all."""
    rounds = list(log([[1, 2], [4, 1], [2, 3]], [[0, 3], [1, 3], [0, 1]], 4))
    result, rule = replay(rule_of("aaggff_d"), 4, rounds), rule_of("aaggff_d")
    weights, coefficients, decision = [], [], None
    for played in play(rule, 4, rounds):
        decision = played.decision.memory["decision"]
        weights += list(played.decision.weights)
        coefficients += list(decision[played.seen.cohort])
    assert result.clients["weight"].tolist() == pytest.approx(weights)
    assert result.clients["coefficient"].tolist() == pytest.approx(coefficients)
    assert sum(weights[:2]) == pytest.approx(1) != pytest.approx(sum(coefficients[:2]))
    assert result.decision == pytest.approx(decision)
    bounds = [rule.regret_bound(number, 4, 0.5) for number in (1, 2, 3)]
    assert result.rounds["bound"].tolist() == pytest.approx(bounds) and len(set(bounds)) == 3
    assert result.rounds["participants"].tolist() == [2, 2, 2]


def test_of_many_clients_the_regret_is_linearised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedrepro.papers.aaggff.replay.HINDSIGHT", 3)
    for clients, linearised in ((3, False), (4, True)):
        rounds = log([[1.0, 2.0, 4.0, 3.0][:clients]] * 2)
        assert replay(rule_of("aaggff_s"), clients, rounds).linearised == linearised


def test_decision_losses_are_of_what_was_decided_before() -> None:
    """Who is not in a sample responds as those in it do on average (eq. 10)."""
    rule, p = rule_of("aaggff_d"), np.full(3, 1 / 3)
    cohorts = [[0, 1, 2], [0, 2], [1, 2], [0]]
    rounds = list(log([[1, 2, 3], [1, 2], [4, 1], [5]], cohorts, 3))
    expected = []
    for played, who in zip(play(rule, 3, rounds), cohorts, strict=True):
        response = played.decision.response
        assert response is not None
        everyone = np.full(3, response.mean())
        everyone[who] = response
        expected.append(-np.log1p(p @ everyone))
        p = played.decision.memory["decision"]
    found = replay(rule, 3, rounds).rounds["decision_loss"]
    assert found.to_numpy() == pytest.approx(expected) and len(set(expected)) == 4


def test_a_log_that_is_partly_sampled_has_linearised_regret_throughout() -> None:
    result = replay(rule_of("aaggff_d"), 3, log([[1, 2, 3], [1, 2]], [[0, 1, 2], [0, 2]], 3))
    assert result.linearised and result.rounds["regret"].notna().all()


@pytest.mark.parametrize("clients", [3, 7])
def test_linearised_regret_is_over_the_best_client_of_whole_gradients(clients: int) -> None:
    """Those of a sample, and the one value that all others have."""
    rng = np.random.default_rng(clients)
    cohorts = [np.sort(rng.choice(clients, size=2, replace=False)).tolist() for _ in range(6)]
    rounds = list(log(rng.exponential(size=(6, 2)).tolist(), cohorts, clients))
    rule, slope, paid, expected = rule_of("aaggff_d"), np.zeros(clients), 0.0, []
    for played in play(rule, clients, rounds):
        made = played.decision
        assert made.gradient is not None and made.elsewhere != 0
        gradient = np.full(clients, made.elsewhere)
        gradient[played.seen.cohort] = made.gradient
        paid, slope = paid + played.before["decision"] @ gradient, slope + gradient
        expected.append(paid - slope.min())
    found = replay(rule, clients, rounds)
    assert found.linearised and found.rounds["regret"].to_numpy() == pytest.approx(expected)


def test_sizes_count_in_the_papers_reading_only() -> None:
    sizes = np.array([1.0, 3.0])
    seen = Observed(0, 2, np.arange(2), np.ones(2), sizes)
    for rule in ("term", "qfedavg"):
        paper = next(play(rule_of(rule), 2, [seen])).decision.weights
        released = next(play(rule_of(rule, "released"), 2, [seen])).decision.weights
        assert paper == pytest.approx([0.25, 0.75]) and released == pytest.approx([0.5, 0.5])


# --- files ----------------------------------------------------------------------------------
def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_long_and_wide_logs_say_the_same(tmp_path: Path) -> None:
    wide = write(tmp_path / "wide.csv", "a,b,c\n1,9,3\n9,5,6\n")
    who = write(tmp_path / "who.csv", "x,y,z\n2,0,\n1,2,\n")
    rows = "round,client,loss\n2,2,6\n1,2,3\n1,0,1\n2,1,5\n"
    long = write(tmp_path / "long.csv", rows)
    one, other = read_log(wide, who), read_log(long)
    assert one.clients == other.clients == 3
    for (cohort, losses), (same, equal) in zip(one.rounds, other.rounds, strict=True):
        assert cohort.tolist() == same.tolist() and losses.tolist() == equal.tolist()
    assert read_log(long, clients=10).clients == 10
    # What else a log has is left out; the highest client may first take part later.
    more = "round,client,note,loss\n1,3,9,3\n2,1,8,4\n2,5,8,6\n"
    log, n = write(tmp_path / "more.csv", more), write(tmp_path / "n.csv", "n\n1\n2\n3\n4\n5\n6\n")
    seen = [*read_log(log, sizes=n).observed()]
    assert [each.sizes.tolist() for each in seen] == [[4], [2, 6]]
    assert [(each.round, each.clients, each.cohort.tolist()) for each in seen] == [
        (0, 6, [3]), (1, 6, [1, 5])
    ]  # fmt: skip
    assert [each.losses.tolist() for each in seen] == [[3], [4, 6]]
    np.save(tmp_path / "wide.npy", np.array([[1, 9, 3], [9, 5, 6]]))
    for (_, losses), (_, same) in zip(
        read_log(tmp_path / "wide.npy").rounds, read_log(wide).rounds, strict=True
    ):
        assert losses.tolist() == same.tolist()


def test_numpy_files_are_read_without_pickle(tmp_path: Path) -> None:
    np.save(tmp_path / "good.npy", np.ones((2, 3)))
    assert read_log(tmp_path / "good.npy").clients == 3
    np.save(tmp_path / "bad.npy", np.array([{}], dtype=object), allow_pickle=True)
    with refused("unreadable", file="bad.npy", names="numbers"):
        read_log(tmp_path / "bad.npy")


@pytest.mark.parametrize(
    ("losses", "fault"),
    [
        ("a,b\n1,x\n", {"code": "unreadable"}),
        ("", {"code": "unreadable"}),
        ("a,b\n", {"code": "value", "names": "round"}),
        ("round,client,loss\n1,0,1\n3,0,1\n", {"key": "round", "value": 2, "names": "1"}),
        ("round,client,loss\n1,0,1\n1,0,2\n", {"key": "client", "names": "1"}),
        ("round,client,loss\n1,0.5,1\n", {"key": "client", "names": "numbers"}),
        ("round,client,loss\n1,0,1\n1,-1,2\n", {"key": "client", "names": "0"}),
        ("round,client,loss\n1,0,1\n,1,2\n", {"key": "round", "names": "0"}),
    ],
)
def test_damaged_logs(tmp_path: Path, losses: str, fault: Fault) -> None:
    with refused(**fault):
        read_log(write(tmp_path / "losses.csv", losses))


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    losses = write(tmp_path / "losses.csv", "a,b\n1,2\n3,4\n")
    with refused(file="who.csv", key="rounds", value=1, names="2"):
        read_log(losses, write(tmp_path / "who.csv", "x\n0\n"))
    with refused(file="who.csv", key="client", names=("0", "1")):
        read_log(losses, write(tmp_path / "who.csv", "x\n0\n2\n"))
    with refused(file="n.csv", value=3, names=("numbers", "2")):
        read_log(losses, sizes=write(tmp_path / "n.csv", "n\n1\n2\n3\n"))
    with refused(names=("positive", "numbers")):
        read_log(losses, sizes=write(tmp_path / "n.csv", "n\n1\n0\n"))
    with refused(names=("positive", "numbers")):
        read_log(losses, sizes=write(tmp_path / "n.csv", "n\n1\ninf\n"))
    with refused(key="client", names=("0", "1")):  # clients are numbered from 0
        read_log(losses, write(tmp_path / "who.csv", "x\n0\n-1\n"))
    for clients in (0, 1):
        with refused(key="clients", value=clients, names="2"):
            read_log(losses, clients=clients)
    with refused(key="name", value="losses.txt"):
        read_log(tmp_path / "losses.txt")
    with refused("missing", file="none.csv"):
        read_log(tmp_path / "none.csv")


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    losses = write(tmp_path / "losses.csv", "a,b\n1,2\n3,4\n")
    sizes = write(tmp_path / "sizes.csv", "n\n1\n3\n")
    arguments = ["replay", "term", "--losses", str(losses), "--sizes", str(sizes)]
    out = ["--out", str(tmp_path / "out"), "--format", "csv", "--set", "tilt=0.1"]
    assert main([*arguments, *out]) == 0
    table = pd.read_csv(tmp_path / "out/clients.csv")
    expected = np.array([1, 3 * np.exp(0.1)])
    assert table["weight"].to_numpy()[:2] == pytest.approx(expected / expected.sum())
    assert [*table] == ["round", "client", "loss", "response", "weight", "coefficient"]
    assert pd.read_csv(tmp_path / "out/rounds.csv")["participants"].tolist() == [2, 2]
    assert "largest weights" in capsys.readouterr().out


def test_the_command_shows_the_last_rounds_and_their_largest_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{number},{10 + number % 2},{20 - number},3,0" for number in range(1, 15)]
    losses = write(tmp_path / "losses.csv", "\n".join(("a,b,c,d,e", *rows)))
    command = ["--losses", str(losses), "--cdf", "frechet", "--fidelity"]
    for fidelity in ("released", "paper"):
        out = ["--out", str(tmp_path / fidelity)]
        assert main(["replay", "aaggff_s", *command, fidelity, *out]) == 0
        shown = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
        rule = rule_of("aaggff_s", fidelity, {"cdf": "frechet"})
        result = replay(rule, 5, read_log(losses).observed())
        kept = pd.read_parquet(tmp_path / fidelity / "clients.parquet")
        assert kept["weight"].tolist() == pytest.approx(result.clients["weight"].tolist())
        shown = [cells for cells in shown if cells[0].isdigit()]
        assert [cells[0] for cells in shown] == [str(number) for number in range(3, 15)]
        last = result.rounds.iloc[-1]
        for cell, value in zip(shown[-1][1:5], last[1:], strict=True):
            assert cell == ("–" if np.isnan(value) else f"{value:.6g}")
        largest = result.clients.tail(5).nlargest(3, "weight")
        pairs = zip(largest["client"], largest["weight"], strict=True)
        assert shown[-1][5] == ", ".join(f"{client}: {weight:.4f}" for client, weight in pairs)
    who = write(tmp_path / "who.csv", "\n".join(("a,b", *["1,2"] * 14)))
    more = ["--clients", "7", "--participants", str(who)]
    assert main(["replay", "aaggff_d", *command, "paper", *more]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("7 clients")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--set", "tilt"], "--set: 'tilt': expected NAME=VALUE"),
        (["--set", "tilt=1=2"], "tilt: '1=2': expected"),
        (["--cdf", "gumbel"], "hyperparameter: 'cdf'"),
        (["--cdf", "gumbel", "--set", "cdf=normal"], "--set: 'cdf=normal'"),
        (["--participants", "none.csv"], "none.csv:"),
    ],
)
def test_command_refuses_in_one_line(
    arguments: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    losses = write(tmp_path / "losses.csv", "a,b\n1,2\n3,4\n")
    assert main(["replay", "term", "--losses", str(losses), *arguments]) == 2
    error = capsys.readouterr().err
    assert line in error and error.count("\n") == 1
