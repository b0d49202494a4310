"""What the package's measures say of themselves, and how clients' values become one number."""

from contextlib import nullcontext
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedrepro.measures import over_clients, registry
from fedrepro.measures.base import Measure
from fedrepro.measures.clients import STATISTICS, by_client, mixed
from fedrepro.support.errors import UserError
from fedrepro.support.plugins import Folders
from support.refusals import refused

LESS = {  # is better
    "clients": "loss ece mce mse mae ece_batch mce_batch",
    "rounds": "loss mse mae ensemble_loss distillation_loss critic_loss generator_loss",
    "sets": "accuracy_std one_epoch_std fid stand_in membership megabytes fedavg_megabytes",
}
PERCENT = {
    "clients": "accuracy top5 auroc accuracy_batch top5_batch",
    "rounds": "accuracy auroc ensemble_accuracy",
    "sets": "accuracy one_epoch test_accuracy test_one_epoch precision recall diversity "
    "feature_diversity recognised nearest membership",
}
OTHERS = "r2"  # more is better, without a unit
UNITS = {"accuracy_std": "points", "one_epoch_std": "points"} | dict.fromkeys(
    ("megabytes", "fedavg_megabytes"), "MB"
)
# Of the server's model on the test set; others are in the column of their own name.
ON_TEST_SET = {"accuracy", "loss", "mse", "mae", "r2", "auroc"}


@pytest.mark.parametrize(
    ("kind", "known", "per"),
    [
        ("clients", registry.CLIENTS, "client"),
        ("rounds", registry.ROUNDS, "round"),
        ("sets", registry.SETS, "run"),
    ],
)
def test_directions_units_and_columns(kind: str, known: Any, per: str) -> None:
    """Of the measures that stand here; a further one needs no line."""
    less, percent = LESS[kind].split(), PERCENT[kind].split()
    listed = {*less, *percent, *([OTHERS] if per != "run" else [])}
    for name, measure in ((name, known[name]) for name in listed):
        assert measure.higher_is_better == (name not in less), name
        assert measure.unit == ("%" if name in percent else UNITS.get(name, "")), name
        assert measure.factor == (100 if measure.unit in ("%", "points") else 1), name
        assert measure.per == per
        assert per == "run" or registry.find(name, per) is measure
        released = name.endswith("_batch")
        assert measure.as_released == released
        assert measure.guide == ("accuracy_batch" if released else "accuracy")
        assert bool(measure.incomparable) == (name in ("fid", "stand_in")), name
        if per == "round":
            assert measure.column == (f"test_{name}" if name in ON_TEST_SET else name)
            assert measure.validated == (name in ("accuracy", "loss"))
            assert measure.in_rounds and measure.same_axes == (name == "accuracy")
        else:
            assert measure.validated == measure.in_rounds == (per == "client")
            assert measure.weighed_by == "test_samples" or per == "run"


def test_a_series_is_in_printed_units() -> None:
    rounds = {"round": [2.0, 4.0], "test_accuracy": [0.25, 0.5], "test_loss": [2.0, 1.0]}
    record: Any = SimpleNamespace(
        rounds=rounds, manifest={"rounds_done": 9}, quality={"numbers": {"fid": 8.0, "recall": 0.5}}
    )
    assert registry.ROUNDS["accuracy"].series(record) == [(2.0, 25.0), (4.0, 50.0)]
    assert registry.ROUNDS["loss"].series(record) == [(2.0, 2.0), (4.0, 1.0)]
    assert registry.SETS["fid"].series(record) == [(9.0, 8.0)]
    assert registry.SETS["recall"].series(record) == [(9.0, 50.0)]
    assert registry.SETS["precision"].series(record) == []
    assert registry.ROUNDS["ensemble_loss"].series(record) == []


VALUES = np.random.default_rng(2).random(24).round(2)
VALUES[[4, 17]] = np.nan
SIZES = np.random.default_rng(3).integers(1, 90, 24)


@pytest.mark.parametrize("sizes", [None, SIZES], ids=["plain", "weighted"])
def test_what_is_said_of_clients_from_their_definitions(sizes: Any) -> None:
    """Clients without a value are nobody; a tenth of 22 is two, and .3 of them six."""
    known = [at for at in range(len(VALUES)) if VALUES[at] == VALUES[at]]
    weight = {at: 1.0 if sizes is None else float(sizes[at]) for at in known}

    def mean(chosen: list[int]) -> float:
        return sum(weight[at] * VALUES[at] for at in chosen) / sum(weight[at] for at in chosen)

    ranked = sorted(known, key=lambda at: VALUES[at])
    assert over_clients.average(VALUES, sizes) == pytest.approx(mean(known))
    for share, number in ((0.1, 2), (0.3, 6), (0.28, 6), (3 / 22, 3), (0.01, 1), (1.0, 22)):
        assert over_clients.lowest(VALUES, sizes, share) == pytest.approx(mean(ranked[:number]))
        assert over_clients.highest(VALUES, sizes, share) == pytest.approx(mean(ranked[-number:]))
    for higher_is_better in (True, False):
        tenths = {name: STATISTICS[name].of(VALUES, sizes, higher_is_better) for name in STATISTICS}
        low, high = mean(ranked[:2]), mean(ranked[-2:])
        first, last = (low, high) if higher_is_better else (high, low)
        assert tenths["worst"] == pytest.approx(first) and tenths["best"] == pytest.approx(last)
        assert tenths["gap"] == pytest.approx(high - low)
        assert tenths["average"] == pytest.approx(mean(known))
    whole = [VALUES[at] for at in known]
    pairs = sum(abs(one - other) for one in whole for other in whole)
    gini = 100 * pairs / (2 * len(whole) * sum(whole))
    assert over_clients.gini(VALUES) == pytest.approx(gini)
    assert STATISTICS["gini"].of(VALUES, sizes, True) == pytest.approx(gini)
    centre = sum(whole) / len(whole)
    spread = (sum((each - centre) ** 2 for each in whole) / len(whole)) ** 0.5
    assert over_clients.deviation(VALUES) == pytest.approx(spread)


def test_units_of_what_is_said_of_clients() -> None:
    accuracy, loss = registry.CLIENTS["accuracy"], registry.CLIENTS["loss"]
    units = {name: (each.unit(accuracy), each.unit(loss)) for name, each in STATISTICS.items()}
    percent, gap = ("%", ""), ("points", "")
    wanted = {
        "average": percent, "worst": percent, "best": percent, "gini": ("", ""), "gap": gap,
    }  # fmt: skip
    assert units | wanted == units
    factors = {name: each.factor(accuracy) for name, each in STATISTICS.items()}
    one = {"average": 100, "worst": 100, "best": 100, "gini": 1, "gap": 100}
    assert factors | one == factors
    assert {name for name, each in STATISTICS.items() if not each.weighable} == {"gini"}
    nobody = np.full(3, np.nan)
    assert all(np.isnan(each.of(nobody, None, True)) for each in STATISTICS.values())
    assert over_clients.gini(np.zeros(4)) == 0 == over_clients.gini(np.ones(5))
    small = np.array([0, 1e-5, 3e-5, 0])  # losses may be
    assert over_clients.gini(small) == pytest.approx(over_clients.gini(small * 1e5))


def test_clients_are_those_of_each_round() -> None:
    columns = {
        "round": [1.0, 1.0, 1.0, 2.0, 6.0, 6.0], "loss": [3.0, 1.0, 2.0, 5.0, 7.0, 6.0],
        "test_samples": [9, 8, 7, 6, 5, 4], "train_samples": [1, 2, 3, 4, 5, 6],
    }  # fmt: skip
    for weighed_by in ("test_samples", "train_samples"):
        found = by_client(columns, "loss", weighed_by)
        assert [number for number, _, _ in found] == [1.0, 2.0, 6.0]
        assert [values.tolist() for _, values, _ in found] == [[3, 1, 2], [5], [7, 6]]
        sizes = columns[weighed_by]
        assert [each.tolist() for _, _, each in found] == [sizes[:3], sizes[3:4], sizes[4:]]
    assert by_client({"round": [], "loss": [], "test_samples": []}, "loss") == []


@pytest.mark.parametrize("of", ["accuracy", "ece", "loss", "top5_batch", "accuracy_batch"])
@pytest.mark.parametrize("right_or_wrong", [True, False])
def test_mixtures_from_their_rules(of: str, right_or_wrong: bool) -> None:
    """Of unequal clients, one of which tests on nothing; of equal weights the smallest counts."""
    random, weights, clients = np.random.default_rng(4), np.arange(11) / 10, 7
    names = ("accuracy", "ece", "loss", "top5_batch", "accuracy_batch")
    tables = {name: random.integers(0, 9, (clients, 11)) / 8 for name in names}
    sizes = np.array([4, 1, 0, 9, 2, 7, 3])
    for name, table in tables.items():
        table[2] = np.nan
        table[:, 0] = -1 if name.startswith("accuracy") else 2  # nobody's choice
    guide = "accuracy_batch" if of.endswith("_batch") else "accuracy"
    if not right_or_wrong:
        tables["accuracy"][:] = tables["accuracy_batch"][:] = np.nan
    columns: Any = {name: table.ravel().tolist() for name, table in tables.items()}
    columns["client"] = np.repeat(np.arange(clients), 11).tolist()
    columns["weight"] = np.tile(weights, clients).tolist()
    columns["test_samples"] = np.repeat(sizes, 11).tolist()

    def goodness(client: int, place: int) -> float:
        table = tables[guide] if right_or_wrong else -tables["loss"]
        return float(table[client, place])

    there = [client for client in range(clients) if sizes[client]]
    own = {client: max(range(11), key=lambda at: goodness(client, at)) for client in there}
    shared = max(range(11), key=lambda at: np.mean([goodness(client, at) for client in there]))
    chosen = {*own.values()}
    wanted = {
        "best": [tables[of][client, shared] for client in there],
        "own": [tables[of][client, own[client]] for client in there],
        "released": [
            tables[of][client, own[client]] if of == guide else max(
                tables[of][client, at] for at in chosen
            )
            for client in there
        ],
    }  # fmt: skip
    for mix, values in wanted.items():
        found, counts = mixed(columns, of, guide, mix)  # type: ignore[arg-type]
        np.testing.assert_allclose(found[there], values, err_msg=mix)
        assert counts.tolist() == sizes.tolist()


# --- measures of the user's own -----------------------------------------------------------------
class Told(Measure):
    """One that methods report."""

    words, unit, higher_is_better, per = "what is told", "points", False, "client"
    incomparable = "It is ours."


class Shared(Measure):
    words, higher_is_better, per = "of the shared model", True, "round"

    def of_outputs(self, outputs: Any, targets: Any) -> float:
        return float(outputs.max())


FILES = {
    "counted": ("round", ""),
    "scored": ("client", "def of_outputs(self, outputs, targets):\n        return outputs.mean()"),
    "left": ("run", "def of_run(self, record):\n        return float('nan')"),
}


def write(folder: Path, name: str, per: str, body: str, rest: str = "") -> Path:
    file = folder / f"{name}.py"
    file.write_text(
        "from fedrepro.measures.base import Measure\n\n\n"
        f"class Own(Measure):\n    words, unit, per = 'w', '%', {per!r}\n"
        f"    higher_is_better = True\n    {body}\n"
        f"{rest}"
    )
    return file


def test_a_measure_of_one_s_own_is_known_as_what_it_is_of(tmp_path: Path) -> None:
    """From files and from objects of a program, beside the package's."""
    for name, content in FILES.items():
        write(tmp_path, name, *content)
    objects: Any = (
        ("measures", "told", Told),
        ("models", "other", object),
        ("measures", "shared", Shared),
    )
    folders = Folders(measures=tmp_path, objects=objects)
    own = {
        "scored": "client",
        "told": "client",
        "counted": "round",
        "shared": "round",
        "left": "run",
    }
    for per, packaged in (("client", registry.CLIENTS), ("round", registry.ROUNDS), ("run", {})):
        mine = {name for name, of in own.items() if of == per}
        assert registry.known(per, folders=folders).keys() == packaged.keys() | mine
        for name in own:
            made = registry.find(name, per, folders=folders)
            assert (made is not None) == (name in mine)
            assert made is None or (made.name, made.per, registry.is_own(made)) == (name, per, True)
    for name in ("accuracy", "loss"):
        for per in ("client", "round"):
            assert registry.the(name, per, folders=folders) is registry.packaged(per)[name]
    assert registry.find("fid", "client", "round", folders=folders) is None
    assert not any(map(registry.is_own, (*registry.ROUNDS.values(), *registry.SETS.values())))
    files = [*registry.files_of(["left", "told", "accuracy"], folders)]
    assert files == [tmp_path / "left.py"]
    kinds = {name: registry.the(name, of, folders=folders) for name, of in own.items()}
    assert {
        name: (each.validated, each.in_rounds, each.weighed_by) for name, each in kinds.items()
    } == {
        "scored": (True, True, "test_samples"),
        "told": (False, False, "train_samples"),
        "counted": (False, True, "train_samples"),
        "shared": (False, True, "test_samples"),
        "left": (False, False, "train_samples"),
    }
    quantity = kinds["told"].quantity
    assert (quantity.unit, quantity.higher_is_better, quantity.incomparable) == (
        "points",
        False,
        Told.incomparable,
    )
    assert "what is told" in quantity.without and kinds["told"].factor == 100
    # Not a number is not another number from one call to the next.
    record: Any = SimpleNamespace(manifest={"rounds_done": 3, "seal": "x"})
    ((number, value),) = kinds["left"].series(record)
    assert number == 3 and np.isnan(value)


@pytest.mark.parametrize(
    ("name", "per", "body", "rest"),
    [
        ("train_samples", "client", "", ""),
        ("validation_mine", "client", "", ""),
        ("client_mine", "round", "", ""),
        ("mine", "run", "def of_run(self, record):\n        return 1.0\n\n"
         "    def of_outputs(self, outputs, targets):\n        return 1.0", ""),
        ("mine", "client", "def of_output(self, outputs, targets):\n        return 1.0", ""),
        ("mine", "client", "", "class Second(Own):\n    pass\n"),
        ("mine", "clients", "", ""),
    ],
    ids=["column", "validation", "of clients", "run and outputs", "hook", "two", "per"],
)  # fmt: skip
def test_a_measure_that_would_not_be_what_it_says_is_refused(
    name: str, per: str, body: str, rest: str, tmp_path: Path
) -> None:
    write(tmp_path, name, per, body, rest)
    with refused(names="of_outputs" if "of_output(" in body else f"{name}.py"):
        registry.known("client", "round", folders=Folders(measures=tmp_path))


def test_no_measure_has_the_name_of_a_column() -> None:
    """Of clients.parquet and rounds.parquet, nor what those of validation samples begin with."""
    columns = "round client train_samples test_samples participations update_norm learning_rate"
    names = f"{columns} bytes_down bytes_up accuracy ensemble_loss client_x test_x validation_x"
    for name in (*names.split(), "tested", "clients"):
        objects: Any = (("measures", name, type("Own", (Told,), {})),)
        with refused(names=name) if name in names.split() else nullcontext():
            assert registry.the(name, "client", folders=Folders(objects=objects)).name == name


def test_a_measure_may_not_change_the_targets_of_others() -> None:
    class Relabels(Measure):
        name, words, higher_is_better, per = "relabels", "relabelled", True, "client"

        def of_outputs(self, outputs: Any, targets: Any) -> float:
            targets[0] = 1
            return 0.5

    assert Relabels().checked(np.zeros((2, 2)), np.array([1, 0])) == 0.5
    with pytest.raises(UserError):
        Relabels().checked(np.zeros((2, 2)), np.array([0, 0]))


def test_measures_outlive_pickling() -> None:
    """Pools of processes send them, and what reads a table has them in its quantities."""
    for known in (registry.CLIENTS, registry.ROUNDS, registry.SETS):
        for measure in known.values():
            assert ForkingPickler.loads(ForkingPickler.dumps(measure)) is measure
