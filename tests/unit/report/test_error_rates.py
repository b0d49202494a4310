"""Verdicts on known truths are wrong as rarely as docs/verdicts.md promises."""

import importlib.util
from typing import Any

import pytest

from fedrepro.report.papers import leads
from support.places import ROOT

found = importlib.util.spec_from_file_location("render", ROOT / "scripts/render_verdicts.py")
assert found and found.loader
render = importlib.util.module_from_spec(found)
found.loader.exec_module(render)


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
        for seeds, share in claim.shares.items():
            if claim.most is not None:
                assert share <= most(claim.most), (claim, seeds)
            elif seeds > 3:
                assert share > 0.4, (claim, seeds)


def test_looking_again_without_a_correction_would_be_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leads, "POCOCK", 0.05)
    claim = next(render.claims(render.np.random.default_rng(1)))
    assert claim.shares[0] > most(claim.most)


def test_the_page_has_these_rates(simulated: tuple[Any, Any], monkeypatch: Any) -> None:
    monkeypatch.chdir(ROOT)
    text = render.PAGE.read_text(encoding="utf-8")
    assert text == render.render(*simulated), "python scripts/render_verdicts.py"
