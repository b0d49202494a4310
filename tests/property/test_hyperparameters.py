"""Hyperparameters: where defaults are from, what default formulas give, and what is refused."""

import math
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import torch

from fedrepro.check.world import play
from fedrepro.engine import tree
from fedrepro.methods import registry
from fedrepro.methods.aaggff_d import AAggFFD
from fedrepro.methods.aaggff_s import AAggFFS
from fedrepro.methods.dp import DP
from fedrepro.methods.ima import IMA
from fedrepro.methods.krum import Krum
from fedrepro.methods.multi_krum import MultiKrum
from fedrepro.methods.server.fedyogi import FedYogi
from fedrepro.methods.superfed_mm import SuPerFedMM
from fedrepro.support.errors import UserError
from support.refusals import refused
from support.worlds import federation

OURS = "ours"  # a switch of ours, or a number that no paper recommends
FEDGO = "FedGO's implementation details"
DISTILLED = {
    "server_epochs": (10, "FedGO: E_s = 10 epochs on the server"),
    "server_rate": (0.001, f"{FEDGO}: Adam with 0.001"),
    "server_batch": (64, f"{FEDGO}: mini-batches of 64"),
    "server_momentum": (None, f"{FEDGO}: Adam"),
    "decays": (True, f"{FEDGO}: a cosine to round 100"),
    "decay_rounds": (0, f"{FEDGO}: of 100 rounds, which is all of them"),
}
SUPERFED = {
    "start": (0.4, "SuPerFed, its experiments: L = 0.4 R"),
    "mu": (0.01, "SuPerFed, its experiments, Table 2.7 of the thesis"),
    "local_from_start": (False, OURS),
}
ADAPTIVE = {
    "lr": (0.01, "IMA, Table V, after Flower"),
    "tau": (0.001, "IMA, Table V, after Flower"),
    "initial_accumulator": (None, "Reddi et al., Algorithm 2: v of at least tau squared"),
}
MOMENTS = {
    "beta1": (0.9, "IMA, Table V, after Flower"),
    "beta2": (0.99, "IMA, Table V, after Flower"),
}
RESPONSES = {
    "cdf": ("weibull", "one of AAggFF's six, which are chosen by data set"),
    "lower": (0.0, "AAggFF, Lemma 4.1 with C1 = 0"),
    "upper": (None, "AAggFF, 1 / K across silos and C across devices"),
}
CRITIC = {
    "critic_steps": (5, "Gulrajani et al., Algorithm 1"),
    "penalty": (10.0, "Gulrajani et al., Algorithm 1"),
}
FIFTH = (0.2, "ours: as many as attack in our settings")

# Part -> field -> default and its source. What a released code has is a deviation, with a number.
DEFAULTS: dict[str, dict[str, tuple[Any, str]]] = {
    "aaggff_d": RESPONSES,
    "aaggff_s": RESPONSES,
    "afl": {"lr": (0.01, "AAggFF, Appendix C.3, the first of three")},
    "apfl": {"alpha": (0.25, "SuPerFed, section 4: APFL is best close to 0.25")},
    "central": {"epochs": (0, OURS), "cosine": (False, OURS)},
    "dafkd": {
        **DISTILLED,
        "fakes": (64, f"{FEDGO}: as many as samples in a mini-batch"),
        "own_distillation": (False, "FedGO, Algorithm 1 (A32)"),
    },
    "discriminators": {"fakes": (64, f"{FEDGO}: as many as samples in a mini-batch")},
    "ditto": {
        "mu": (1.0, "SuPerFed's code"),
        "personal_epochs": (None, "SuPerFed's code has five; ours in a shorter round"),
    },
    "dp": {
        "clip": (1.0, OURS),
        "noise_multiplier": (1.0, "McMahan et al., their first private models"),
    },
    "fedasam": {
        "rho": (0.7, "IMA, Table V, CNNs"),
        "eta": (0.2, "IMA, Table V, CNNs"),
    },
    "fedavg": {},
    "fedbn": {},
    "fedcgan": {"per_class": (10, "FedEvg: the smallest of its synthetic sets")},
    "fedcvae": {
        "per_class": (10, "FedEvg: the smallest of its synthetic sets"),
        "error": ("pixel", OURS),
    },
    "feddf": DISTILLED,
    "feddisco": {
        "a": (0.5, "FedGO, Appendix E.2, after Ye et al."),
        "b": (0.1, "FedGO, Appendix E.2, after Ye et al."),
    },
    "feddyn": {"alpha": (0.01, "Acar et al.: the value of the code's example")},
    "fedevg": {
        "per_class": (10, "FedEvg: the smallest of its synthetic sets"),
        "first_step": (10.0, "FedEvg: beta from 10 to 0.01"),
        "chain_steps": (1, "FedEvg, Algorithm 4.1"),
        "chain_step": (1.0, "FedEvg, Algorithm 4.1"),
        "chain_noise": (0.01, "FedEvg, Algorithm 4.1"),
        "synthetic": (0.1, "FedEvg, lambda"),
        "clip": (3.0, "FedEvg's code (36)"),
        "bounded": (True, "FedEvg's code (36)"),
        "reinitialise": (True, "FedEvg, Algorithm 4.1"),
    },
    "fedfa": {
        "pull": (0.1, "IMA, Table V, the first of three"),
        "calibration": (0.25, OURS),
    },
    "fedgan": CRITIC,
    "fedgkd_plus": {
        **DISTILLED,
        "gamma": (0.001, "FedGO, Appendix E.2"),
        "temperature": (3.0, "FedGO, Appendix E.2"),
        "models": (5, "FedGO, Appendix E.2"),
    },
    "fedgma": {
        "threshold": (0.8, "IMA, Table V"),
        "hard": (False, "Tenison et al. (B5)"),
    },
    "fedgo": {**DISTILLED, "weighting": ("odds", "FedGO, Corollary 3.3")},
    "fedmgda": {"radius": (0.5, "AAggFF, Appendix C.3, the second of three")},
    "fednova": {},
    "fedper": {},
    "fedprox": {
        "sample_weighted": (True, "McMahan et al., Algorithm 1"),
        "constant_server_lr": (True, "McMahan et al., Algorithm 1"),
        "mu": (0.01, "SuPerFed and AAggFF; IMA, Table V, the second of three"),
        "halved": (False, OURS),
    },
    "fedrep": {"body_epochs": (None, "SuPerFed's code has five; ours in a shorter round")},
    "fedsam": {"rho": (0.05, "Foret et al., the default of the code")},
    "fedspeed": {
        "mu": (0.1, "the authors' code: lamb"),
        "rho": (0.1, "the authors' code"),
        "alpha": (1.0, "the authors' code"),
    },
    "fedtgp": {
        "strength": (0.001, "FedGO, Appendix E.2"),
        "margin": (100.0, "FedGO, Appendix E.2"),
        "server_epochs": (1000, "FedGO, Appendix E.2"),
        "server_rate": (0.005, "FedGO, Appendix E.2"),
        "server_batch": (10, "FedGO, Appendix E.2"),
    },
    "feduv": {
        "variance": (2.5, "FedGO, Appendix E.2, alpha"),
        "uniformity": (0.5, "FedGO, Appendix E.2, lambda"),
    },
    "generated": {"number": (25000, "FedGO: 25,000 generated images")},
    "ima": {
        "window": (5, "IMA: P = 5"),
        "start": (0.75, "IMA: t_s = 0.75 R"),
        "scheme": ("exponential", "IMA, section 7.3.2"),
        "decay": (0.03, "IMA, Table VII"),
        "period": (20, "IMA, section 7.3.2"),
        "least": (5e-5, "IMA, section 7.3.2: 0.00005"),
    },
    "krum": {"share": FIFTH},
    "lg_fedavg": {},
    "local": {},
    "median": {},
    "moon": {
        "mu": (1.0, "Li et al., the default of the code"),
        "tau": (0.5, "Li et al., eq. 3: 0.5 in the experiments"),
    },
    "multi_krum": {
        "share": FIFTH,
        "number": (None, "Damaskinos et al.: m - f - 2"),
    },
    "norm_clip": {"bound": (1.0, OURS)},
    "per_fedavg": {
        "alpha": (0.01, "Fallah et al., their experiments"),
        "hessian_free": (True, "Fallah et al.: HF, beside FO"),
        "delta": (0.001, OURS),
    },
    "pfedme": {
        "mu": (15.0, "Dinh et al., and SuPerFed's code"),
        "inner_steps": (0, "ours: an epoch of the client's optimizer"),
        "personal_lr": (None, OURS),
        "equal_weights": (False, OURS),
    },
    "propfair": {"baseline": (3.0, "AAggFF, Appendix C.3, the second of three")},
    "qfedavg": {"q": (1.0, "AAggFF, Appendix C.3, the second of three")},
    "quantised": {
        "bits": (8, OURS),
        "error_feedback": (True, "ours: with Karimireddy et al., Remark 5"),
    },
    "scaffnew": {"p": (None, "Mishchenko et al.: one over the mean number of steps of a round")},
    "scaffold": {
        "equal_weights": (False, OURS),
        "from_gradients": (False, OURS),
        "after_momentum": (False, OURS),
        "decays_twice": (False, OURS),
    },
    "superfed_lm": {**SUPERFED, "nu": (2.0, "SuPerFed, its experiments: 2")},
    "superfed_mm": {**SUPERFED, "nu": (1.0, "SuPerFed, its experiments with model mixing: 1")},
    "term": {"tilt": (1.0, "AAggFF, Appendix C.3, the second of three")},
    "top_k": {"share": (0.1, OURS)},
    "trimmed_mean": {"share": FIFTH},
    "wgan_gp": CRITIC,
    "fedadagrad": {**ADAPTIVE, "beta1": (0.0, "Reddi et al.: FedAdagrad has no first moment")},
    "fedadam": {**ADAPTIVE, **MOMENTS},
    "fedavgm": {
        "lr": (1.0, "Hsu et al.: the server moves by the mean, with momentum 0.9"),
        "momentum": (0.9, "Hsu et al.: the server moves by the mean, with momentum 0.9"),
    },
    "fedyogi": {**ADAPTIVE, **MOMENTS},
}


def test_every_default_is_the_one_of_its_source() -> None:
    for name, part in registry.parts().items():
        switches = {each.name for each in part.cls.deviations()}
        found = registry.hyperparameters_of(part.cls)
        plain = {key: value for key, value in found.items() if key not in switches}
        assert plain == {key: value for key, (value, _) in DEFAULTS[name].items()}, name
    assert DEFAULTS.keys() == registry.parts().keys()


def test_by_default_a_part_follows_its_paper_not_the_released_code() -> None:
    for name, part in registry.parts().items():
        made = part.cls()
        for each in part.cls.deviations():
            assert getattr(made, each.name) == each.default != each.metadata["released"], name


@pytest.mark.parametrize(
    ("cohort", "attackers", "closest"), [(5, 1, 2), (10, 2, 6), (20, 4, 14), (7, 1, 4), (3, 0, 1)]
)
def test_krum_s_and_multi_krum_s_formulas(cohort: int, attackers: int, closest: int) -> None:
    """f is a fifth, rounded down; both count m - f - 2."""
    context = federation().context
    ctx = replace(context, cohort_size=cohort, sizes=torch.ones(cohort))
    assert Krum().attackers(ctx) == MultiKrum().attackers(ctx) == attackers
    assert MultiKrum().selected(cohort, attackers) == closest == max(cohort - attackers - 2, 1)
    assert MultiKrum(number=3).selected(cohort, attackers) == 3
    assert Krum().selected(cohort, attackers) == 1


def test_other_default_formulas() -> None:
    assert AAggFFS().bounds(10) == (0.0, 0.1)
    assert AAggFFD().bounds(0.25) == (0.0, 0.25)
    for too_low in (
        lambda: AAggFFS(lower=0.1).memory(10),
        lambda: AAggFFD(lower=0.25).bounds(0.25),
    ):
        with refused(key="lower", names=("upper",)):
            too_low()
    # Theorems 5.1 and 5.2, with the constants of Lemmas 4.1 and A.2.
    wide = {"lower": 0.5, "upper": 2.0}
    across = 2 * 2 / 1.5 * 10 * (1 + math.log(1 + 100 / 160))
    assert AAggFFS(**wide).regret_bound(100, 10, 1.0) == pytest.approx(across)
    constant = 2 / 1.5 + 2 * 1.5 / (0.2 * 1.5)
    bound = 2 * constant * math.sqrt(100 * math.log(10))
    assert AAggFFD(**wide).regret_bound(100, 10, 0.2) == pytest.approx(bound)
    assert [IMA().first_of(rounds) for rounds in (400, 200, 10, 1)] == [300, 150, 7, 0]
    assert [SuPerFedMM().first_of(rounds) for rounds in (500, 5, 3)] == [200, 2, 1]
    v = FedYogi(tau=0.5).build().init({"a": torch.zeros(2)})
    assert any(leaf.tolist() == [0.25, 0.25] for leaf in tree.leaves(v))


# Without these, the hyperparameter would be ignored.
BESIDE = {"pfedme.personal_lr": {"inner_steps": 1}}


def composition_of(part: registry.Part) -> str:
    around = {"wrapper": f"{part.name}+fedavg", "server optimizer": f"fedavg+{part.name}"}
    return around.get(part.kind, part.name)


@pytest.mark.parametrize("name", [name for name in DEFAULTS if DEFAULTS[name]])
def test_a_number_is_refused_in_one_line_or_gives_finite_models(name: str) -> None:
    """At the bounds of its range, below it and where it is a divisor."""
    part = registry.parts()[name]
    for key, default in registry.hyperparameters_of(part.cls).items():
        if isinstance(default, bool | str):
            continue
        numbers = (-1, 0, 1) if isinstance(default, int) else (-1.0, 0.0, 1e-12, 1.0)
        for value in numbers:
            server: tree.Tree = {}
            given = {key: value, **BESIDE.get(f"{name}.{key}", {})}
            with suppress(UserError):
                world = federation(composition_of(part), {name: given}, momentum=0.0)
                world.method.check(replace(world.context, batch_size=8, cohort_size=5))
                server, _, _ = play(world, until=2)
            for path, leaf in tree.named(server):
                finite = not leaf.is_floating_point() or bool(leaf.isfinite().all())
                assert finite, f"{name}.{key}: {value}: the server's {path}"


# Interval -> the numbers that may be anywhere in it. All others may be 0 or more.
RANGES = {
    "(-inf, inf)": "feddisco.b term.tilt",
    "(0, inf)": "aaggff_d.upper aaggff_s.upper dp.clip fedadagrad.lr fedadagrad.tau fedadam.lr "
    "fedadam.tau fedavgm.lr feddyn.alpha fedgkd_plus.temperature fedspeed.mu fedyogi.lr "
    "fedyogi.tau moon.tau norm_clip.bound per_fedavg.delta propfair.baseline ima.least",
    "(0, 1]": "scaffnew.p top_k.share",
    "[0, 0.5)": "krum.share multi_krum.share trimmed_mean.share",
    "[0, 1)": "dafkd.server_momentum fedadagrad.beta1 fedadam.beta1 fedadam.beta2 "
    "fedavgm.momentum feddf.server_momentum fedgkd_plus.server_momentum fedgo.server_momentum "
    "fedyogi.beta1 fedyogi.beta2 ima.decay",
    "[0, 1]": "apfl.alpha fedfa.momentum fedgma.threshold fedspeed.alpha superfed_lm.start "
    "superfed_mm.start ima.start",
    "[1, inf)": "dafkd.fakes dafkd.server_batch discriminators.fakes ditto.personal_epochs "
    "fedcgan.per_class fedcvae.per_class feddf.server_batch fedevg.chain_steps fedevg.per_class "
    "fedgan.critic_steps fedgkd_plus.models fedgkd_plus.server_batch fedgo.server_batch "
    "fedrep.body_epochs fedtgp.server_batch fedtgp.server_epochs generated.number ima.window "
    "multi_krum.number wgan_gp.critic_steps",
    "[2, inf)": "ima.period",
    "[2, 16]": "quantised.bits",
}
INTERVAL_OF = {name: interval for interval, names in RANGES.items() for name in names.split()}
CDFS = {"weibull", "frechet", "gumbel", "exponential", "logistic", "normal"}
CHOICES = {
    "aaggff_d.cdf": CDFS,
    "aaggff_s.cdf": CDFS,
    "fedcgan.labels_of_fakes": {"made", "drawn"},
    "fedcvae.error": {"image", "pixel"},
    "fedevg.schedule": {"cosine", "ddpm"},
    "fedgo.weighting": {"odds", "uniform", "variance", "entropy", "domain"},
    "ima.scheme": {"exponential", "constant", "cyclic", "epoch", "none"},
}


def values_around(interval: str, step: float) -> tuple[list[float], list[float]]:
    """Numbers at the ends of an interval: those in it, and those out of it."""
    low, high = (float(end) for end in interval[1:-1].split(","))
    inside = [end for end, bound in ((1e6, high), (-1e6, low)) if math.isinf(bound)]
    outside = [high + step, low - step]
    (inside if interval[0] == "[" else outside).append(low)
    (inside if interval[-1] == "]" else outside).append(high)
    inside += [low + step, *([high - step] if step < 1 else [])]
    return inside, outside


@pytest.mark.parametrize("name", [name for name in DEFAULTS if DEFAULTS[name]])
def test_what_is_out_of_range_is_refused_and_what_is_in_it_is_not(name: str) -> None:
    """At each end: 1e-9, or 1 of a whole number, to both sides."""
    part = registry.parts()[name]

    def accepts(key: str, value: object) -> bool:
        refusal = None
        try:
            given = {key: value, **BESIDE.get(f"{name}.{key}", {})}
            registry.compose(composition_of(part), {name: given})
        except UserError as error:
            refusal = error
        assert refusal is None or (refusal.file, refusal.key) == (f"method {name}", key)
        return refusal is None

    for key, default in registry.hyperparameters_of(part.cls).items():
        path = f"{name}.{key}"
        if isinstance(default, str):
            assert all(accepts(key, choice) for choice in CHOICES[path]), path
            assert not any(accepts(key, wrong) for wrong in ("", "mean", default[:-1])), path
        elif not isinstance(default, bool):
            interval = INTERVAL_OF.get(path, "[0, inf)")
            whole = isinstance(default, int) or interval[1] in "12"
            inside, outside = values_around(interval, 1 if whole else 1e-9)
            for values, fits in ((inside, True), (outside, False)):
                for value in filter(math.isfinite, values):
                    number = int(value) if whole else value
                    assert accepts(key, number) == fits, (path, number)
            assert not accepts(key, math.inf) and not accepts(key, math.nan), path
        wrong_types = [None, "3", [1], 2 if isinstance(default, bool | str) else True]
        if isinstance(default, int) and not isinstance(default, bool):
            wrong_types.append(4.0)
        for value in wrong_types:
            assert accepts(key, value) == (value is None and default is None), (path, value)


@pytest.mark.parametrize("hessian_free", [True, False])
def test_per_fedavg_needs_a_sample_for_each_part_of_a_mini_batch(hessian_free: bool) -> None:
    least = 3 if hessian_free else 2
    world = federation("per_fedavg", {"per_fedavg": {"hessian_free": hessian_free}})
    for batch_size in range(1, 5):
        ctx = replace(world.context, batch_size=batch_size)
        if batch_size < least:
            with refused("value", key="batch_size", value=batch_size, names=str(least)):
                world.method.check(ctx)
        else:
            world.method.check(ctx)


def test_without_noise_a_clip_may_be_as_large_as_a_number_can_be() -> None:
    DP(clip=1e300, noise_multiplier=0.0)
    with refused(key="clip", names="0"):
        DP(clip=float("inf"), noise_multiplier=0.0)
