import re
from pathlib import Path

import pytest
import yaml
from scipy import stats

from fedrepro.config.config_file import Config
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.cell import CellRun, Result, TableCell
from fedrepro.report.cells.claims import CellIndex, Finding, judge_claim
from fedrepro.report.pages import claims as one_claim
from fedrepro.report.papers import published
from fedrepro.report.papers.claim import Claim
from fedrepro.report.papers.leads import PairedTest, Single, Word, holm
from fedrepro.report.papers.pairs import PrintedFinding, PrintedWord, judge_printed, printed_pairs
from fedrepro.report.papers.published import PrintedCell, Published
from fedrepro.report.papers.verdict import Verdict
from fedrepro.run.landed_runs import folder_of
from fedrepro.support.old_names import with_new_keys
from support.places import ROOT
from support.refusals import refused

SYSTEMS = ("ima", "superfed", "aaggff", "fedevg", "fedgo")


@pytest.fixture(scope="module")
def papers() -> Published:
    return published.load(ROOT)


def claim_of(papers: Published, anchor: str) -> Claim:
    return next(claim for claim in papers.claims if claim.anchor == anchor)


def printed(papers: Published, anchor: str) -> PrintedFinding:
    claim = claim_of(papers, anchor)
    return judge_printed(claim, printed_pairs(claim, papers))


def test_every_paper_has_claims_and_each_compares_cells(papers: Published) -> None:
    assert {claim.system for claim in papers.claims} >= {*SYSTEMS}
    assert len(papers.claims) == len({claim.anchor for claim in papers.claims}) >= 40
    for claim in papers.claims:
        assert printed_pairs(claim, papers)
        for item in claim.tables:
            assert papers.tables[claim.system, item]


def test_a_lead_may_fall_short_by_what_rounding_can_change(papers: Published) -> None:
    """Of 56.365 less 49.955 at most 6.42 could have been: 6.43 could not."""
    claim = claim_of(papers, "ima-gain-cifar-10")
    for by, word in ((6.42, PrintedWord.SUPPORTS), (6.43, PrintedWord.DOES_NOT_SUPPORT)):
        changed = claim.model_copy(update={"by": by})
        assert judge_printed(changed, printed_pairs(changed, papers)).word == word


@pytest.mark.parametrize(
    ("anchor", "word", "held", "of"),
    [
        ("ima-accuracy", PrintedWord.SUPPORTS, 96, 96),  # 12 settings, 8 methods
        ("ima-speed", PrintedWord.SUPPORTS, 24, 24),  # 6 methods, 4 starts
        (
            "ima-gain-cifar-10",
            PrintedWord.SUPPORTS,
            1,
            1,
        ),  # 56.37 less 49.96, rounded: 6.42
        ("ima-gain-cifar-100", PrintedWord.SUPPORTS, 1, 1),  # 40.93 less 37.87, of FedAdam
        ("ima-cnn-above-resnet", PrintedWord.SUPPORTS, 10, 16),  # on average
        ("superfed-lm-label-skew", PrintedWord.SUPPORTS, 53, 54),  # APFL 98.98, LM 98.83
        ("aaggff-plug-in-average", PrintedWord.SUPPORTS, 10, 10),
        ("aaggff-gap-cross-device", PrintedWord.SUPPORTS, 10, 10),
        ("aaggff-gap-reddit", PrintedWord.SUPPORTS, 5, 5),  # FedMGDA+ 16.74
        ("aaggff-normal-above-weibull", PrintedWord.SUPPORTS, 4, 4),
        ("fedevg-accuracy", PrintedWord.DOES_NOT_SUPPORT, 15, 16),  # FedCVAE 66.93, FedEvg 62.95
        ("fedgo-better-generator", PrintedWord.SUPPORTS, 2, 2),
        ("fedgo-same-generator", PrintedWord.SUPPORTS, 1, 1),  # 41.04 twice
        ("fedgo-seven-points", PrintedWord.SUPPORTS, 9, 9),  # 79.62 less 72.59
        ("fedgo-one-epoch", PrintedWord.SUPPORTS, 9, 9),  # 74.03 against 72.59
        ("fedgo-five-discriminator-epochs", PrintedWord.SUPPORTS, 1, 1),  # 71.38 against 67.51
        ("fedgo-byzantine", PrintedWord.SUPPORTS, 8, 8),  # all but DaFKD
        ("ima-largest-gain", PrintedWord.SUPPORTS, 1, 1),  # 59.30 less 49.65
        (
            "ima-later-is-slower",
            PrintedWord.SUPPORTS,
            16,
            18,
        ),  # on average, though not with FedAvg (318) and FedGMA (316)
        ("ima-half-the-rounds", PrintedWord.SUPPORTS, 4, 4),  # 1.96 and 2.03
        ("ima-ninety-six-rounds", PrintedWord.SUPPORTS, 1, 1),  # 308 less 212
        ("superfed-hardly-affected", PrintedWord.SUPPORTS, 4, 4),  # TinyImageNet 47.28, 49.29
        ("fedgo-thirteen-points", PrintedWord.SUPPORTS, 1, 1),  # 74.40 less 59.53
        ("fedgo-networks", PrintedWord.SUPPORTS, 4, 4),  # central training is no rival
    ],
)
def test_what_the_printed_numbers_say(
    papers: Published, anchor: str, word: str, held: int, of: int
) -> None:
    found = printed(papers, anchor)
    assert (found.word, found.held, found.of) == (word, held, of)
    assert len(found.against) == of - held


def test_the_furthest_against_a_claim_comes_first(papers: Published) -> None:
    found = printed(papers, "fedevg-accuracy")
    assert [(pair.left.text[:5], pair.right.text[:5]) for pair in found.against] == [
        ("62.95", "66.93")
    ]
    leads = [pair.lead for pair in printed(papers, "superfed-lm-noise-mce").against]
    assert leads == sorted(leads)


def test_what_is_counted_decides_without_seeds(papers: Published) -> None:
    """FedGO's overhead: at most a tenth of FedAvg's operations, which no chance changes."""
    claim = claim_of(papers, "fedgo-overhead")
    pairs = printed_pairs(claim, papers)
    cells = [cell for pair in pairs for cell in (pair.left, pair.right)]
    counted = {(cell.system, cell.table, cell.name): float(cell.mean or 0) for cell in cells}
    found = judge_claim(claim, pairs, {}, counted)
    assert (found.word, len(found.computed)) == (Word.HOLDS, len(pairs))
    assert found.counted and found.overall is None  # no run, and no mean lead of runs
    first = pairs[0].left
    more = {(first.system, first.table, first.name): 1e12}
    assert judge_claim(claim, pairs, {}, counted | more).word == Word.DOES_NOT_HOLD
    assert judge_claim(claim, pairs, {}).word == Word.NOT_COMPUTED


def test_central_training_is_no_rival(papers: Published) -> None:
    claim = claim_of(papers, "fedgo-accuracy")
    rivals = {pair.right.method for pair in printed_pairs(claim, papers)}
    assert len(rivals) == 9
    assert not {"Central Training", "FedGO"} & rivals


def test_effects_are_what_a_paper_claims_at_a_cell(papers: Published) -> None:
    def effect(system: str, table: str, **wanted: str) -> float | None:
        cell = papers.find(system, table, wanted)
        assert cell is not None
        return papers.effect(cell)

    cnn = {"dataset": "FMNIST", "setting": "CNN; #C=2"}
    for method in ("FedAvg", "FedAvg+IMA"):
        assert effect("ima", "I", method=method, **cnn) == pytest.approx(84.68 - 81.17)
    mnist = {"dataset": "MNIST", "setting": "clients=500,train_samples=96"}
    assert effect("superfed", "2.3", method="FedAvg", **mnist) == pytest.approx(99.24 - 96.04)
    assert effect("superfed", "2.3", method="SuPerFed-LM", **mnist) == pytest.approx(98.98 - 98.83)
    # Of Gini coefficients the least is the best.
    gini = {"dataset": "Berka", "metric": "gini_x100"}
    assert effect("aaggff", "2", method="AAggFF-S", **gini) == pytest.approx(10.47 - 10.16)
    vgg = {"dataset": "CIFAR-10", "setting": "alpha=0.1; model=VGG11"}
    assert effect("fedgo", "8", method="FedGO", **vgg) == pytest.approx(72.53 - 68.59)
    assert effect("fedgo", "10", setting="alpha=0.1; server epochs Es=1",
                  metric="server_test_accuracy_pct") is None  # fmt: skip


@pytest.mark.parametrize(
    ("anchor", "label"),
    [
        ("ima-best-on-fmnist", "Best on FMNIST"),
        ("superfed-mm-dirichlet", "MM Dirichlet"),
        ("fedgo-accuracy", "Accuracy"),
    ],
)
def test_a_label_writes_names_as_the_claim_does(papers: Published, anchor: str, label: str) -> None:
    assert claim_of(papers, anchor).label == label


def test_a_claim_that_compares_nothing_is_named(papers: Published) -> None:
    claim = claim_of(papers, "fedevg-accuracy")
    empty = claim.model_copy(update={"tables": ["table_9"]})
    with refused("value", file="fedevg/claims.yaml", key=claim.name):
        printed_pairs(empty, papers)


def test_a_wrong_claim_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "reports/papers"
    folder.mkdir(parents=True)
    (folder / "systems.yaml").write_text("[fedevg]\n", encoding="utf-8")
    (folder / "fedevg").symlink_to(ROOT / "reports/papers/fedevg")
    whole = published.load(tmp_path).claims
    assert len(whole) == 4
    (folder / "fedevg").unlink()
    (folder / "fedevg").mkdir()
    for source in (ROOT / "reports/papers/fedevg").iterdir():
        (folder / "fedevg" / source.name).symlink_to(source)
    (folder / "fedevg/claims.yaml").unlink()
    entry = {"name": "x", "says": "x", "source": "x", "basis": "rumour", "tables": []}
    (folder / "fedevg/claims.yaml").write_text(yaml.safe_dump([entry]), encoding="utf-8")
    with refused("value", file="fedevg/claims.yaml", key="basis", value="rumour"):
        published.load(tmp_path)


def test_holm() -> None:
    """.01 three times, .03 twice, .04 once; never less than a smaller one's."""
    assert holm([0.01, 0.04, 0.03], 3) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8], 2) == [1.0, 1.0]
    assert holm([], 0) == []
    # A family of ten, of which three are computed.
    assert holm([0.01, 0.04, 0.03], 10) == pytest.approx([0.1, 0.32, 0.27])


def test_a_paired_test_by_hand() -> None:
    """Leads 1, 2, 3: mean 2, s 1, t = 2 sqrt 3, half-width 4.302653 / sqrt 3."""
    found = PairedTest.of([1.0, 2.0, 3.0], 0.0)
    assert (found.seeds, found.lead) == (3, 2.0)
    assert found.low == pytest.approx(2 - 4.302653 / 3**0.5)
    assert found.high == pytest.approx(2 + 4.302653 / 3**0.5)
    assert found.p == pytest.approx(2 * stats.t.sf(2 * 3**0.5, 2))
    assert PairedTest.of([1.0, 2.0, 3.0], 2.0).p == pytest.approx(1.0)


@pytest.mark.parametrize("leads", [[5.0], [5.0, 5.0, 5.0]])
def test_one_seed_or_no_spread_tests_nothing(leads: list[float]) -> None:
    assert PairedTest.of(leads, 0.0) == PairedTest(len(leads), 5.0, None, None, None)


PLACE = {"system": "s", "item": "table_1", "table": "1", "dataset": "d", "metric": "acc1"}
CLAIM = {
    "system": "s", "name": "x", "says": "x", "source": "x", "basis": "table",
    "tables": ["table_1"], "left": {"method": "A"}, "right": {"method": "B"}, "expect": "more",
}  # fmt: skip
SETTINGS = ("one", "two")


def judge(
    values: dict[str, dict[int, float]], verdict: Verdict | None = None, **keys: object
) -> Finding:
    """Of A before B in two settings; ``values`` by method and setting, such as "A one"."""
    papers = Published(
        tuple(
            PrintedCell(**PLACE, setting=setting, method=method, mean=mean, std=None, text="",
                        decimals=1, doubt="", kind=published.PrintedMetric())
            for setting in SETTINGS for method, mean in (("A", 2.0), ("B", 1.0))
        ),
        {"s": published.System.model_validate({
            **dict.fromkeys(("system", "name", "title", "changes", "paper"), "s"),
            "spread": {"over": "none", "source": "x"},
        })},
        (), {}, {}, {}, (),
    )  # fmt: skip
    index: CellIndex = {
        ("s", "1", cell.name): TableCell(
            0, 0, cell,
            Result("s/x", ("m",), "m", {}, tuple(
                CellRun("m", seed, "finished", "", value, False, (), "", None)
                for seed, value in values[name].items()
            ), None, "", len(values[name]), 0.0, None, None),
            None, "", None, verdict,
        )
        for cell in papers.cells if (name := f"{cell.method} {cell.setting}") in values
    }  # fmt: skip
    claim = Claim.model_validate(CLAIM | keys)
    return judge_claim(claim, printed_pairs(claim, papers), index)


CLEAR = {
    "A one": {1: 5.0, 2: 6.0, 3: 7.0}, "B one": {1: 3.0, 2: 4.1, 3: 4.9},
    "A two": {1: 5.0, 2: 6.0, 3: 7.0}, "B two": {3: 5.9, 2: 5.0, 1: 3.9},
}  # fmt: skip


def test_a_claim_holds_where_all_its_comparisons_do() -> None:
    found = judge(CLEAR)
    assert found.word == Word.HOLDS
    assert [each.word for each in found.comparisons] == [Single.LEADS, Single.LEADS]
    # Leads 2, 1.9, 2.1 and 1.1, 1, 1.1, paired by seed; their means 1.55, 1.45, 1.6.
    assert found.comparisons[1].test.lead == pytest.approx(3.2 / 3)
    assert found.overall.lead == pytest.approx(4.6 / 3)
    assert found.overall.seeds == 3
    raw = [each.test.p for each in found.comparisons]
    assert [each.p for each in found.comparisons] == pytest.approx(holm(raw, 2))
    assert judge(CLEAR, expect="less").word == Word.DOES_NOT_HOLD
    assert judge(CLEAR, by=1.5).word == Word.DOES_NOT_HOLD
    assert judge(CLEAR, quantifier="average").word == Word.HOLDS
    assert found.printed_lead == 1.0


def test_a_claim_with_a_gap_is_undecided() -> None:
    without = {name: values for name, values in CLEAR.items() if name != "B two"}
    found = judge(without)
    assert found.word == Word.UNDECIDED
    assert re.findall(r"\d+", found.tally) == ["1", "2", "1"]
    assert not re.search(r"\d", found.why), "said once"
    assert [each.word for each in found.comparisons] == [Single.LEADS, Single.NOT_COMPUTED]
    assert judge(without, quantifier="average").word == Word.UNDECIDED
    assert judge(without, expect="less").word == Word.DOES_NOT_HOLD


def test_without_runs_on_both_sides_nothing_is_computed() -> None:
    assert judge({}).word == Word.NOT_COMPUTED
    assert judge({"A one": {1: 5.0}, "B one": {2: 3.0}}).word == Word.NOT_COMPUTED
    assert judge(CLEAR, Verdict("not comparable", "diverged")).word == Word.NOT_COMPUTED


def test_numbers_of_another_kind_than_the_printed_ones_are_compared_with_each_other() -> None:
    """As FedEvg's FIDs, none of which can be held against a printed one (item 40)."""
    assert judge(CLEAR, Verdict("not comparable", "", basis="not comparable")).word == Word.HOLDS


def test_one_seed_decides_nothing() -> None:
    found = judge({name: {1: values[1]} for name, values in CLEAR.items()})
    assert (found.word, found.overall.seeds) == (Word.UNDECIDED, 1)
    assert found.overall.lead == pytest.approx((2 + 1.1) / 2)


def test_every_claim_says_where_the_text_makes_it() -> None:
    """By file and lines of the papers' texts, which are beside the project or not there."""
    texts = ROOT.parent / "shared/seeds"
    for claim in published.load(ROOT).claims:
        assert claim.place, claim.anchor
        for place in claim.place if claim.system in SYSTEMS else ():
            name, _, lines = place.partition(":")
            first, _, last = lines.partition("-")
            assert 0 < int(first) <= int(last or first), place
            if (texts / name).exists():
                text = (texts / name).read_text(encoding="utf-8").splitlines()
                assert any(line.strip() for line in text[int(first) - 1 : int(last or first)]), (
                    place
                )


def test_a_claim_that_two_are_the_same_has_a_limit_of_the_text_or_no_test() -> None:
    for claim in published.load(ROOT).claims:
        if claim.quantifier == "same" and claim.margin is None:
            assert isinstance(claim.compact, str) and claim.compact, claim.anchor


def test_an_old_key_of_claims_is_read(tmp_path: Path) -> None:
    assert with_new_keys("claims", [{"over": "average"}], tmp_path) == [{"quantifier": "average"}]


def test_a_claims_page_names_the_folder_that_is_there(tmp_path: Path) -> None:
    """A workbench's own runs are in results; those of a clone are landed."""
    bench = Workbench(tmp_path, Config(), {}, {}, {}, {})
    assert one_claim._folder(bench, "own/compact-a") == "results/runs/own/compact-a"
    (tmp_path / folder_of("own/compact-a")).mkdir(parents=True)
    assert one_claim._folder(bench, "own/compact-a") == folder_of("own/compact-a").as_posix()
