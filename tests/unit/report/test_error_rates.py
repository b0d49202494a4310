"""Verdicts on known truths are wrong as rarely as docs/verdicts.md promises."""

from typing import Any

import pytest

from fedrepro.report.papers import leads
from support.places import ROOT
from support.scripts import script

render = script("render_verdicts")


def most(promised: float) -> float:
    """With three standard errors of a simulated share."""
    return float(promised + 3 * (promised * (1 - promised) / render.TABLES) ** 0.5)


@pytest.fixture(scope="module")
def simulated() -> tuple[Any, Any]:
    return render.simulate()


def test_cells_err_as_rarely_as_promised(simulated: tuple[Any, Any]) -> None:
    cells, _ = simulated
    for case, rates in cells:
        if case.most:
            assert rates.differs <= most(case.most[0]), case
            assert rates.agrees <= most(case.most[1]), case
    # Nor is it all undecided: where the seeds are many and scatter little, equal numbers agree.
    power = {(case.what, case.seeds): rates.power for case, rates in cells}
    assert power["joint, 5 printed seeds", 5] > 0.9 and power["draw", 10] > 0.6


def test_claims_err_as_rarely_as_promised(simulated: tuple[Any, Any]) -> None:
    _, claims = simulated
    for claim in claims:
        if claim.most is not None:
            assert max(claim.shares.values()) <= most(claim.most), claim
    # Nor is it all undecided: clear leads, and clear losses, are found with ten seeds.
    power = {(claim.word, claim.truth): claim.shares for claim in claims if claim.most is None}
    assert power["holds", "leads of two standard deviations"][10] > 0.95
    assert power["does not hold", "one rival is two standard deviations ahead"][10] > 0.8


def test_looking_again_without_a_correction_would_be_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leads, "POCOCK", 0.11)
    claim = next(render.claims(render.np.random.default_rng(1)))
    assert max(claim.shares.values()) > most(claim.most)


@pytest.mark.parametrize(("seeds", "of"), [(3, 1), (3, 4), (5, 4), (10, 2)])
def test_the_simulated_rule_is_the_one_that_judges(seeds: int, of: int) -> None:
    """The words of many claims at once are those that each of them gets."""
    random = render.np.random.default_rng(seeds)
    middles = random.normal(0.3, 0.7, (150, 1, of))
    drawn = render.drawn(random, (150, seeds, of), 0.5, 0) / 3 + middles
    seen = set()
    for margin in (0.0, 0.5, 2.0):
        words = render.words_of(drawn, margin)
        for claim, word in zip(drawn, words, strict=True):
            by_seed = [dict(enumerate(column.tolist())) for column in claim.T]
            assert leads.judge_leads(by_seed, leads.Rule(margin=margin)).word == word
            seen.add(str(word))
    assert len(seen) >= 4, seen


def test_the_page_has_these_rates(simulated: tuple[Any, Any], monkeypatch: Any) -> None:
    monkeypatch.chdir(ROOT)
    text = render.PAGE.read_text(encoding="utf-8")
    assert text == render.render(*simulated), "python scripts/render_verdicts.py"
