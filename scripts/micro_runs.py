"""Golden micro-runs: run every part of the code that determines a number, in a minute or two.

    python scripts/micro_runs.py FILE [PART ...] [--only NAME ...]

writes hashes of what each of them computed in each round. Hashes leave out names: states and
columns may be renamed, but every bit must stay. `make bless` runs them with the old and the new
code (:mod:`bless`). They take the path of `fedrepro run`: YAML, data, partition, rounds, files.
Each micro-run tests one part of the code, named as in :mod:`fedrepro.provenance.numerics`. New
methods, models and server optimizers are included automatically. With ``--only``, it plays the
micro-runs with these names, and leaves out one that fails: older code may not know what it asks.
"""

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from pydantic import TypeAdapter

from fedrepro.analysis.studies import studies
from fedrepro.cli.main import main as cli
from fedrepro.cli.run import carry_out
from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey
from fedrepro.data.partition.partition import make_partition
from fedrepro.data.partition.schemes import PartitionSpec
from fedrepro.engine import tree
from fedrepro.engine.executors import EXECUTORS
from fedrepro.engine.net import Net
from fedrepro.methods import registry
from fedrepro.models import registry as models
from fedrepro.run import scoring
from fedrepro.support.errors import UserError
from fedrepro.support.rng import stream

CORE, PARTITION = "core", "partition"  # not imported: older code is played with this file, too
SYSTEM, SEED, ROUNDS, CLASSES = "micro", 3, 4, 5
OUTPUTS = 60  # of models that run alone: classes, or words

LABEL_SKEW = {"scheme": "client_dirichlet", "clients": 6, "alpha": 0.6, "test_fraction": 0.25}
PLAIN = {
    "dataset": "pictures", "partition": LABEL_SKEW, "model": "twonn", "rounds": ROUNDS,
    "participation": 0.67, "epochs": 2, "batch_size": 8,
    "optimizer": {"lr": 0.05, "momentum": 0.5, "weight_decay": 0.001}, "lr_decay": 0.9,
    "evaluate": {"every": 1, "clients": True},
    # Lets four rounds reach what happens late in a run.
    "methods": {
        "ima": {"start": 0.5, "window": 2}, "ditto": {"personal_epochs": 1},
        "fedrep": {"body_epochs": 1}, "fedtgp": {"server_epochs": 5},
    },
}  # fmt: skip
ADAM = {"name": "adam", "lr": 0.002, "betas": [0.5, 0.9], "weight_decay": 0.0001}
SERVER = {"epochs": 1, "scaling": "symmetric", "optimizer": ADAM, "evaluate": {"every": 1}}
SHARED = {"scheme": "grouped_dirichlet", "clients": 4, "alpha": 0.5, "server": 0.4}
GIVEN = {
    "unlabelled": "server",
    "generator": {"setting": "generator", "method": "wgan_gp"},
    "discriminators": {"setting": "discriminators", "method": "discriminators"},
}
DISTILLED = {"server_epochs": 1}
CNN = {"model": "small_bn_cnn", "rounds": 2, "epochs": 1}

# Settings that a kind of method needs, and variations of one key, which test the core. Other keys
# are as in PLAIN.
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "everyone": {"participation": 1.0},
    "repeated": {"partition": {**LABEL_SKEW, "seed": 1}, "save_models_at": {"fedavg": [ROUNDS]}},
    "generator": {
        **SERVER, "partition": {"scheme": "at_server", "share": 0.4}, "model": "wgan_gp_small",
        "methods": {"wgan_gp": {"critic_steps": 2}}, "rounds": 2, "participation": 1.0,
    },
    "clients_generator": {
        **SERVER, "partition": SHARED, "model": "wgan_gp_small", "rounds": 2,
        "methods": {"fedgan": {"critic_steps": 2}},
    },
    "generated": {
        **SERVER, "partition": {"scheme": "at_server", "share": 0.4}, "model": "wgan_gp_small",
        "methods": {"generated": {"number": 40}}, "rounds": 1, "participation": 1.0,
        "inputs": {"generator": GIVEN["generator"]},
    },
    "discriminators": {
        **SERVER, "partition": SHARED, "model": "discriminator_small", "participation": 1.0,
        "rounds": 2, "inputs": {"generator": GIVEN["generator"]},
        "methods": {"discriminators": {"fakes": 8}},
    },
    "distilled": {
        **SERVER, "partition": SHARED, "model": "small_bn_cnn", "rounds": 3, "inputs": GIVEN,
        "methods": {
            "feddf": DISTILLED, "fedgo": DISTILLED, "fedgkd_plus": DISTILLED,
            "dafkd": {**DISTILLED, "fakes": 4}, "fedtgp": {"server_epochs": 5},
        },
    },
    "byzantine": {
        **SERVER, "partition": SHARED, "model": "small_bn_cnn", "rounds": 2, "inputs": GIVEN,
        "methods": {"fedgo": DISTILLED}, "byzantine": 2,
    },
    "energy": {
        "model": "fedevg_small", "scaling": "unit", "optimizer": ADAM, "rounds": 3,
        "methods": {"fedevg": {"per_class": 2}},
        "evaluator": {"model": "fedevg_small_judge", "epochs": 2, "real_epochs": 1},
    },
    "conditional": {
        "model": "fedcgan_small", "scaling": "symmetric", "optimizer": ADAM, "rounds": 2,
        "methods": {"fedcgan": {"per_class": 2}},
    },
    "variational": {
        "model": "fedcvae_small", "scaling": "unit", "optimizer": ADAM, "rounds": 2,
        "methods": {"fedcvae": {"per_class": 2}},
    },
    "adam": {"optimizer": ADAM},
    "convolutional": {**CNN},
    "mirrored": {**CNN, "augment": "flip"},
    "bfloat16": {**CNN, "model": "mcmahan_cnn", "precision": "bfloat16"},
    "noise": {"noise": {"kind": "symmetric", "rate": 0.3}},
    "attacked": {"attack": {"kind": "inner_product", "share": 0.34, "scale": 2.0}},
    "mislabelled": {"attack": {"kind": "label_flip", "share": 0.34}},
    "unavailable": {
        "availability": {
            "dropout": 0.2, "partial": 0.5, "deadline": 1.5, "spread": 0.5, "late": "partial",
            "period": 4,
        },
    },
    "plain_sgd": {"participation": 1.0, "optimizer": {"lr": 0.05, "weight_decay": 0.001}},
    "steps": {"lr_decay": {"factor": 0.5, "every": 2}, "decay_from": 1},
    "legacy": {"cohorts": {"stream": "numpy_legacy", "seed": 5}},
    "validation": {"partition": {**LABEL_SKEW, "validation": 0.2}},
    "seldom": {"evaluate": {"every": 3, "clients": False}},
    "table": {
        "dataset": "table", "model": "logistic",
        "partition": {"scheme": "natural", "test_fraction": 0.25},
    },
    "texts": {
        "dataset": "texts", "model": "next_char_lstm", "rounds": 2,
        "partition": {"scheme": "natural", "test_fraction": 0.25},
    },
}  # fmt: skip
IN_A_SETTING = {
    "wgan_gp": "generator", "fedgan": "clients_generator", "generated": "generated",
    "discriminators": "discriminators", "fedevg": "energy", "fedcgan": "conditional",
    "fedcvae": "variational", "scaffnew": "plain_sgd",
}  # fmt: skip
OF_A_SHARE = ("trimmed_mean", "krum", "multi_krum")  # a fifth of `plain`'s cohort is nobody
OF_PAPERS = {
    "legacy": ("paper superfed cohorts_numpy_legacy",),
    "byzantine": ("paper fedgo given_byzantine",),
}
VARIED = (  # setting, method; the setting shows which part of the core it reaches
    *((name, "fedavg") for name in (
        "plain", "everyone", "adam", "convolutional", "mirrored", "bfloat16", "noise", "steps",
        "attacked", "mislabelled", "unavailable", "legacy", "validation", "seldom", "table",
        "texts", "distilled",
    )),
    ("validation", "superfed_mm"), ("noise", "scaffold"), ("byzantine", "fedgo"),
    ("plain", "central"), ("texts", "ditto"),
)  # fmt: skip
# Every other executor, with a method.
WAYS = dict.fromkeys(EXECUTORS.keys() - {"sequential"}, "scaffold") | {"parallel": "ditto"}
INSIDE = ("fedprox", "scaffold", "scaffold+fedadam", "ditto")  # of wrappers
SCHEMES: tuple[Mapping[str, Any], ...] = (
    LABEL_SKEW, SHARED,
    {"scheme": "iid", "clients": 7, "stratified": True, "test_fraction": 0.3, "validation": 0.2},
    {"scheme": "shards", "clients": 10, "classes_per_client": 2},
    {"scheme": "paired_shards", "clients": 10},
    {"scheme": "dirichlet", "clients": 5, "alpha": 0.5, "minimum": 2},
    {"scheme": "labels", "clients": 6, "classes_per_client": 2},
    {"scheme": "reusing_dirichlet", "clients": 5, "alpha": 0.5},
    {"scheme": "at_server", "share": 0.5},
    {"scheme": "natural", "test_fraction": 0.25},
    {"scheme": "natural", "clients": 3, "test_fraction": 0.25},
    {"scheme": "pachinko", "clients": 4},
    {"scheme": "domains", "within": {"scheme": "iid", "clients": 2}},
)  # fmt: skip
# By the module that is called: a run that it is about, and the command with what it writes.
ANALYSES: dict[str, tuple[str, ...]] = {
    "landscape_of_run": ("plain", "fedavg", "landscape", "landscapes"),
    "quality_of_run": ("energy", "fedevg", "quality", "quality"),
    "regret_of_run": ("everyone", "aaggff_s+fedavg", "regret", "regrets"),
}
SHAPES = ((1, 28, 28), (3, 32, 32), (3, 64, 64), (1, 8000), (12,), (2, 12))


OF_ANOTHER_SHAPE = (RuntimeError, ValueError, IndexError, TypeError)


class NotPlayed(Exception):
    """A part that no micro-run covers: any change of its code counts as a change of numbers."""


def digest(what: object) -> str:
    """A hash of the bits of a tensor, of a tree of tensors (without names), or of plain values."""
    if isinstance(what, torch.Tensor):
        flat = what.detach().cpu().contiguous().view(-1)
        content = flat.view(torch.uint8).numpy().tobytes()
        return hashlib.sha256(f"{what.dtype} {list(what.shape)}".encode() + content).hexdigest()
    if isinstance(what, Mapping):
        return digest(sorted(map(digest, what.values())))
    if isinstance(what, np.ndarray):
        return digest([what.dtype.str, what.shape, what.tobytes().hex()])
    return hashlib.sha256(repr(what).encode()).hexdigest()


def write_data() -> None:
    """Small data of each kind, from numpy's generator with a fixed seed."""
    random = np.random.RandomState(0)
    centres = random.randint(0, 256, (CLASSES, 1, 28, 28))

    def pictures(count: int) -> tuple[Any, Any]:
        y = random.randint(0, CLASSES, count)
        noise = random.normal(0, 60, (count, 1, 28, 28))
        return (centres[y] + noise).clip(0, 255).astype(np.uint8), y.astype(np.int64)

    Path("data/pictures").mkdir(parents=True)
    x, y = pictures(300)
    np.savez("data/pictures/images.npz", x=x, y=y)
    names = {"class_names": [f"class {number}" for number in range(CLASSES)]}
    Path("data/pictures/datasheet.json").write_text(json.dumps(names), encoding="utf-8")
    rows = random.normal(size=(160, 6))
    outcome = (rows @ random.normal(size=6) > 0).astype(int)
    lines = [",".join([*(f"x{number}" for number in range(6)), "place", "outcome"])]
    for number, (row, label) in enumerate(zip(rows, outcome, strict=True)):
        lines.append(",".join([*map(str, row.round(4)), f"p{number % 5}", str(label)]))
    Path("data/table.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    letters = np.array(list("abcdefgh "))
    roles = {}
    for role in range(6):
        spoken = "".join(random.choice(letters, 90 + 10 * role))
        starts = range(0, len(spoken) - 81, 2)
        roles[f"role{role}"] = {
            "x": [spoken[start : start + 80] for start in starts],
            "y": [spoken[start + 80] for start in starts],
        }
    found = {
        "users": list(roles), "num_samples": [len(role["y"]) for role in roles.values()],
        "user_data": roles,
    }  # fmt: skip
    for split in ("train", "test"):
        Path("data/texts/data", split).mkdir(parents=True)
        Path("data/texts/data", split, "all.json").write_text(json.dumps(found), encoding="utf-8")


def write_workbench() -> None:
    write_data()
    described = {"title": "micro", "licence": "none", "citation": "none"}
    datasets = {
        "pictures": {**described, "kind": "synthetic", "path": "data/pictures"},
        "table": {
            **described, "kind": "tabular_csv", "path": "data/table.csv", "label": "outcome",
            "group": "place", "task": "binary", "test_fraction": 0.0,
        },
        "texts": {**described, "kind": "leaf_shakespeare", "path": "data/texts"},
    }  # fmt: skip
    experiment = {
        "system": SYSTEM, "title": "Micro-runs", "paper": "none",
        "settings": {name: {**PLAIN, **keys} for name, keys in SETTINGS.items()},
    }  # fmt: skip
    Path("config/experiments").mkdir(parents=True)
    config = {"executor": "sequential", "checkpoint_every": 1}
    for name, what in (
        ("config", config),
        ("datasets", {"datasets": datasets}),
        (f"experiments/{SYSTEM}", experiment),
    ):
        Path(f"config/{name}.yaml").write_text(yaml.safe_dump(what), encoding="utf-8")


def compositions() -> Iterator[tuple[str, str, str]]:
    """(part, setting, composition) of all methods, wrappers and server optimizers."""
    parts = registry.parts()
    for name, part in parts.items():
        released = [f"{name}@released"] if part.cls.deviations() else []
        if part.kind.startswith("server"):
            for each in (name, *released):
                yield name, "plain", f"fedavg+{each}"
                yield name, "plain", f"scaffold+{each}"
        elif part.kind == "wrapper":
            whole = part.cls.full_participation or name in OF_A_SHARE
            setting = "everyone" if whole else "plain"
            inner = [
                each
                for each in INSIDE
                if part.cls.refuses(parts[each.partition("+")[0]].cls()) is None
            ]
            for each in (name, *released):
                yield from ((name, setting, f"{each}+{method}") for method in inner)
        else:
            setting = "everyone" if part.cls.full_participation else "plain"
            setting = "distilled" if part.cls.requires else setting
            for each in (name, *released):
                yield name, IN_A_SETTING.get(name, setting), each


def main() -> int:
    out, *wanted = sys.argv[1:]
    only: set[str] = set()
    if "--only" in wanted:
        wanted, only = wanted[: (at := wanted.index("--only"))], {*wanted[at + 1 :]}
    target = Path(out).absolute()
    torch.set_num_threads(1)
    played: dict[str, dict[str, Any]] = {}

    def play(part: str, name: str, what: Callable[[], list[str]], *also: str) -> None:
        """``part`` is the part that it tests; ``also`` lists others that it uses."""
        if (only and name not in only) or (wanted and not {part, *also} & {*wanted}):
            return
        try:
            rounds = what()
        except (NotPlayed, ImportError) as error:  # or an extra is not installed
            print(f"{name}: left out: {error}", file=sys.stderr)
            return
        except (Exception, SystemExit) as error:
            if not only:
                raise
            print(f"{name}: left out: {error!r}", file=sys.stderr)
            return
        played[name] = {"parts": [part, *also], "rounds": rounds}

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_workbench()
        runs = [(f"method {part}", *each) for part, *each in compositions()]
        runs += [(CORE, *each, "sequential") for each in VARIED]
        runs += [(CORE, "plain", method, executor) for executor, method in WAYS.items()]
        for part, setting, method, *executor in runs:
            name = " ".join((method, "in", setting, *executor))
            of_model = f"model {SETTINGS[setting].get('model', PLAIN['model'])}"
            of_paper = OF_PAPERS.get(setting, ())
            play(part, name, partial(run, setting, method, *executor), of_model, *of_paper)
            if name in played:
                (way,) = executor or ["sequential"]
                played[name]["data"] = _data_of[setting, method, way, SEED]
        for name, (setting, method, *words) in ANALYSES.items():
            play(f"analysis {name}", f"analysis {name}", partial(analysis, setting, method, words))
        play("analysis decomposition_of_runs", "decomposition", decomposition)
        for name, file in studies().items():
            play(f"analysis {file.stem}", f"study {name}", partial(study, name))
        for name in models.MODELS:
            play(f"model {name}", f"model {name}", partial(model, name))
        for scheme in SCHEMES:
            play(PARTITION, f"partition {json.dumps(scheme)}", partial(partition, scheme))
        os.chdir("/")
    target.write_text(json.dumps(played, indent=1), encoding="utf-8")
    print(f"{len(played)} micro-runs", file=sys.stderr)
    return 0


def with_parts(state: list[Any], tables: list[list[str]]) -> list[Any]:
    """The hash of a state and its tables, then those of each part."""
    return [digest([*state, tables]), digest(state), *tables]


_known: dict[tuple[str, str, str, int], list[Any]] = {}
_data_of: dict[tuple[str, str, str, int], Any] = {}  # what a run's manifest states about its data


def run(setting: str, method: str, executor: str = "sequential", seed: int = SEED) -> list[Any]:
    """The hashes of a run after each round, and of its files at the end.

    Each is a list: the hash of all, that of the state or model, and those of each table's columns.
    """
    key = setting, method, executor, seed
    if key not in _known:
        _known[key] = _run(*key)
        folder = RunKey(f"{SYSTEM}/{setting}", method, seed).folder
        _data_of[key] = json.loads((folder / "manifest.json").read_bytes())["data"]
    return _known[key]


def _run(setting: str, method: str, executor: str, seed: int) -> list[Any]:
    from fedrepro.config.config_file import Overrides

    bench = load(overrides=Overrides(executor=executor))
    for source in bench.setting(f"{SYSTEM}/{setting}").inputs.values():
        if source != "server":
            run(source.setting, source.method)
    found: list[Any] = []
    record = scoring.record

    def watched(plan: Any, state: Any, before: Any, played: Any) -> None:
        record(plan, state, before, played)
        clients = [
            tree.leaves(state.client_states.get(client)) for client in state.client_states.clients()
        ]
        rows = [
            [tuple(column.tolist()) for column in each.as_tree().values() if len(column)]
            for each in (state.rounds, state.clients, state.decisions)
        ]
        found.append(
            with_parts(
                [
                    sorted(map(digest, tree.leaves(state.server))),
                    [sorted(map(digest, leaves)) for leaves in clients],
                ],
                [sorted(map(digest, columns)) for columns in rows],
            )
        )

    scoring.record = watched
    which = RunKey(f"{SYSTEM}/{setting}", method, seed)
    # A finished run is not replaced by one with another executor.
    shutil.rmtree(bench.root / which.folder, ignore_errors=True)
    try:
        carry_out(bench, which)
    finally:
        scoring.record = record
    import pyarrow.parquet
    from safetensors.torch import load_file

    files = []
    for file in sorted((bench.root / which.folder).glob("*.parquet")):
        table = pyarrow.parquet.ParquetFile(file).read()
        files.append(sorted(digest(column.to_pylist()) for column in table.columns))
    left = load_file(bench.root / which.folder / "model.safetensors")
    return [*found, [digest([files, digest(left)]), digest(left), *files]]


def analysis(setting: str, method: str, words: Sequence[str]) -> list[str]:
    """The hash of what an analysis of a run writes."""
    command, folder = words
    run(setting, method)
    assert cli([command, f"{SYSTEM}/{setting}", method, "--seed", str(SEED)]) == 0
    return numbers_of(Path("results", folder, SYSTEM, setting, method, f"seed{SEED}.json"))


def decomposition() -> list[str]:
    """The same of what is made of runs that differ in their seed."""
    setting, method, seeds = "repeated", "fedavg", (SEED, SEED + 1)
    for seed in seeds:
        run(setting, method, seed=seed)
    words = [f"{SYSTEM}/{setting}", method, "--seeds", *map(str, seeds), "--samples", "40"]
    assert cli(["decompose", *words]) == 0
    (made,) = Path("results/decompositions", SYSTEM, setting, method).glob("*.json")
    return numbers_of(made)


def study(name: str) -> list[str]:
    """The same of what is computed without a run."""
    assert cli(["study", name]) == 0
    return numbers_of(Path(f"results/studies/{name}.json"))


def numbers_of(made: Path) -> list[str]:
    """The hash of a file's numbers, without what the file says of itself."""
    content = json.loads(made.read_text(encoding="utf-8"))
    found = {key: content[key] for key in content.keys() - {"files", "of", "seal", "what"}}
    if "quality" in made.parts:  # two texts, as in files of code that did not seal them
        found["of"] = {"config_hash": "", "model": ""}
    return [digest(plain(found))]


def plain(what: Any) -> Any:
    """The numbers of some JSON, whatever they are called; texts may be hashes of code or names."""
    if isinstance(what, Mapping):
        return sorted(map(repr, map(plain, what.values())))
    if isinstance(what, list):
        return [plain(each) for each in what]
    return what if isinstance(what, int | float) else None


def learned(name: str) -> Any:
    """A file of weights as large as the real one, for models that start from one."""
    from safetensors.torch import save

    if name == "distilbert":
        from transformers import DistilBertConfig, DistilBertModel

        whole, prefix = DistilBertModel(DistilBertConfig()), "distilbert."
    else:
        from torchvision.models import efficientnet_b0

        whole, prefix = efficientnet_b0(weights=None).features, "features."
    rng = stream(SEED, "learned")
    tensors = {
        f"{prefix}{key}": torch.rand(leaf.shape, generator=rng) * 0.02 + 0.01
        for key, leaf in whole.state_dict().items()
        if leaf.is_floating_point()
    }
    return models.LearnedWeights("made-up.safetensors", save(tensors))


def model(name: str) -> list[str]:
    """Hashes of a model's initial weights, and of its outputs and gradients on fixed inputs."""
    entry = models.find(name)
    words = entry.family == "recurrent" or entry.weights == "distilbert"
    weights_of = (learned(entry.weights),) if entry.weights else ()
    for shape in SHAPES:
        for outputs in (OUTPUTS, 1):
            try:
                module = models.build(name, shape, outputs, *weights_of)
                net = Net(module)
                weights = net.init(stream(SEED, "init"))
                rng = stream(SEED, "inputs")
                latent = getattr(module, "latent", 0)
                if words:
                    x = torch.randint(0, OUTPUTS - 10, (3, *shape), generator=rng)
                else:
                    x = torch.rand((3, *((latent,) if latent else shape)), generator=rng)
                drawn = {
                    key: leaf.clone().requires_grad_(key in net.trainable(weights))
                    for key, leaf in weights.items()
                }
                called = module.generator if latent else module
                prefix = "generator." if latent else ""
                inside = {
                    key.removeprefix(prefix): leaf
                    for key, leaf in drawn.items()
                    if key.startswith(prefix)
                }
                y = torch.func.functional_call(called.eval(), inside, (x,))
            except (UserError, AttributeError, *OF_ANOTHER_SHAPE):
                continue
            y.square().mean().backward()
            gradients = [leaf.grad for leaf in drawn.values() if leaf.grad is not None]
            return [digest(weights), digest(y), digest([digest(each) for each in gradients])]
    raise NotPlayed(f"model {name}: none of the shapes fits")


def partition(scheme: Mapping[str, Any]) -> list[str]:
    """The hash of the assignment of samples to clients."""
    random = np.random.RandomState(1)
    labels, groups = random.randint(0, 12, 600), random.randint(0, 6, 600)
    if scheme["scheme"] == "pachinko":  # groups have disjoint classes
        groups = labels // 3
    spec = TypeAdapter(PartitionSpec).validate_python(scheme)
    found = []
    for seed in (1, 2):
        made = make_partition(labels, groups, spec, seed)
        lists = [[digest(each) for each in rows] for _, rows, _ in made.parts if rows is not None]
        server = digest(made.server) if made.server is not None else ""
        found.append(digest([lists, server]))
    return found


if __name__ == "__main__":
    raise SystemExit(main())
