"""For notebooks and scripts: train on arrays, load what was trained, compare, plot.

``import fedrepro as fr`` gives what the package's ``__all__`` names. This stands above all rooms:
nothing in the package imports it but ``__init__``, when one of those is first asked for.
"""

import inspect
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrepro.support.errors import UserError, bad_value

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd
    from torch import nn

SETTING = "own/arrays"
WHERE = "fedrepro.train"

Architecture = Callable[[tuple[int, ...], int], "nn.Module"]


@dataclass(frozen=True)
class Run:
    """A finished run, read from its folder when it is looked at.

    Attributes:
        folder: with manifest.json, rounds.parquet, clients.parquet, model.safetensors.
        manifest: what it says of itself: configuration, code, machine, hashes of its files.
        architecture: of a model that was given as an object; None: found by its name.
    """

    folder: Path
    manifest: dict[str, Any] = field(repr=False)
    architecture: "Architecture | None" = field(default=None, repr=False)

    @property
    def method(self) -> str:
        return str(self.manifest["run"]["method"])

    @property
    def seed(self) -> int:
        return int(self.manifest["run"]["seed"])

    @cached_property
    def rounds(self) -> "pd.DataFrame":
        """A row for each evaluated round: round, test_accuracy (a fraction), test_loss, ..."""
        return _table(self.folder / "rounds.parquet")

    @cached_property
    def clients(self) -> "pd.DataFrame":
        """A row for each evaluated round and client: round, client, train_samples, ..."""
        return _table(self.folder / "clients.parquet")

    @cached_property
    def model(self) -> "nn.Module":
        """The trained shared model, in its testing mode.

        Raises:
            UserError: for a method that leaves something else, or a model that is not known here.
        """
        from fedrepro.models import _registry as registry
        from fedrepro.run.given import MODEL
        from fedrepro.run.store import load_tree

        tensors, facts = load_tree(self.folder / MODEL)
        if facts.get("part") != "" or facts["clients"] is not None:
            raise UserError(f"{self.folder}: {self.method} leaves no shared model")
        shape, outputs = tuple(facts["input_shape"]), int(facts["outputs"])
        build = self.architecture
        module = build(shape, outputs) if build else registry.build(facts["model"], shape, outputs)
        module.load_state_dict(tensors, strict=False)
        return module.eval()


def _table(path: Path) -> "pd.DataFrame":
    import pandas as pd

    return pd.read_parquet(path)


def train(
    method: str,
    model: "str | nn.Module | Architecture",
    clients: Sequence[Any],
    *,
    rounds: int,
    test: Any = None,
    test_fraction: float | None = None,
    participation: float = 1.0,
    epochs: int = 1,
    batch_size: int = 32,
    lr: float = 0.1,
    momentum: float = 0.0,
    seed: int = 1,
    device: str = "cpu",
    folder: str | Path | None = None,
    **hyperparameters: Any,
) -> Run:
    """Train a method on data of one's own, as `fedrepro run` would.

    Args:
        method: a composition such as "fedprox" or "ima+scaffold" (:func:`methods` lists them).
        model: the name of one (`fedrepro models`), a module, or a function of a sample's shape and
            the number of classes that returns one. Weights are drawn anew, from ``seed``.
        clients: of each, (x [n, ...], y [n]) as arrays or tensors, or one of torch's data sets.
        test: samples of the same kind that no client has.
        test_fraction: of its own samples that each client holds out, to be scored by itself;
            without ``test`` 0.2 if it is not said.
        lr: of the clients' SGD.
        folder: where to keep the run; a call that was broken off goes on there, and one that is
            finished there is not made again. Without, it goes with the object that is returned.
        hyperparameters: of the method's parts, such as ``mu=0.1``.

    Raises:
        UserError: in one line, for whatever is wrong with the request.
    """
    from fedrepro.config.run_spec import Execution, RunSpec
    from fedrepro.config.settings import Setting
    from fedrepro.data.arrays import NAME, dataset_of
    from fedrepro.data.partition.partition import make_partition
    from fedrepro.methods._files import needs_of
    from fedrepro.models import _registry as registry
    from fedrepro.run import fingerprint, runner
    from fedrepro.support.typed_yaml import validate

    if needs := needs_of(method):
        wanted = f"one that needs nothing, not {', '.join(needs)}: use an experiment file"
        raise bad_value(WHERE, "method", method, wanted)
    dataset = dataset_of(clients, test)
    share = 0.2 if test_fraction is None and test is None else test_fraction or 0.0
    architecture = None if isinstance(model, str) else _architecture(model)
    name = model if isinstance(model, str) else _name_of(model)
    content = {
        "dataset": NAME,
        "partition": {"scheme": "natural", "test_fraction": share},
        "model": name,
        "rounds": rounds,
        "participation": participation,
        "epochs": epochs,
        "batch_size": batch_size,
        "optimizer": {"lr": lr, "momentum": momentum},
        "evaluate": {"clients": share > 0},
    }
    setting = validate(Setting, content, WHERE)
    setting._name = SETTING
    parts = _by_part(method, hyperparameters)
    spec = RunSpec(setting, method, method, parts, seed, Execution(device=device))
    samples = dataset.train
    partition = make_partition(samples.y, samples.group, setting.partition, seed)
    temporary = None if folder else tempfile.mkdtemp(prefix="fedrepro-")
    run = Run(Path(folder or f"{temporary}/run"), {}, architecture)
    if temporary:
        weakref.finalize(run, shutil.rmtree, temporary)
    with _threads_kept(), registry.given(name, architecture):
        if architecture:
            module = architecture(dataset.input_shape, dataset.classes)
            code = _code_with(method, module)
        else:
            code = fingerprint.of_code(spec)
        run.manifest.update(runner.run(spec, dataset, partition, run.folder, code))
    return run


def _name_of(model: "nn.Module | Architecture") -> str:
    """What a model that was given as an object is called."""
    name = getattr(model, "__name__", type(model).__name__)
    return name if name.isidentifier() else "model"


def _architecture(model: "nn.Module | Architecture") -> "Architecture":
    """A function that makes a copy of a module, or the function that was given."""
    import copy

    from torch import nn

    if isinstance(model, nn.Module):
        return lambda shape, outputs: copy.deepcopy(model)
    return model


def _by_part(composition: str, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Each hyperparameter with the part of the composition that has it.

    Raises:
        UserError: for one that no part has, or several have.
    """
    from fedrepro.methods import _registry as registry
    from fedrepro.methods._files import split

    known = registry.parts()
    names = [name for name, _ in split(composition) if name in known]
    fields = {name: registry.hyperparameters_of(known[name].cls) for name in names}
    found: dict[str, dict[str, Any]] = {name: {} for name in names}
    for key, value in values.items():
        having = [name for name in names if key in fields[name]]
        if len(having) != 1:
            choices = sorted({each for own in fields.values() for each in own})
            wanted = "a hyperparameter of one part" + (f", as {', '.join(choices)}" * bool(choices))
            raise bad_value(WHERE, "hyperparameter", key, wanted, choices)
        found[having[0]][key] = value
    return found


def _code_with(composition: str, module: "nn.Module") -> str:
    """The fingerprint of a run's code with a model that is no file's: its layers and their source.

    Where Python has no source of a class, nothing that was kept counts as the same.
    """
    from fedrepro.run import fingerprint

    around = fingerprint.code_around_model(composition)
    code = fingerprint.of_closure(around, fingerprint.OUTSIDE_A_RUN)
    classes = {type(each) for each in module.modules()}
    try:
        sources = sorted(
            inspect.getsource(cls) for cls in classes if not cls.__module__.startswith("torch.")
        )
    except (OSError, TypeError):
        sources = [uuid.uuid4().hex]
    return fingerprint.of_text(f"{code} {module} {sources}")


@contextmanager
def _threads_kept() -> Iterator[None]:
    """Leave torch's number of threads as it was."""
    import torch

    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def load(
    what: str | Path, method: str | None = None, seed: int | None = None, root: str | Path = "."
) -> Run:
    """A finished run: of a folder, or of a workbench's setting, a method and a seed.

    Args:
        what: a folder with a manifest.json, or the name of a setting such as "mine/skewed".
        root: the workbench; where its own run is missing, a committed reference result is taken.

    Raises:
        UserError: when there is none, or its files are not what its manifest says.
    """
    from fedrepro.run.results import changed_files, read_run

    if method is None:
        folder = Path(what)
        manifest = _manifest(folder)
    else:
        from fedrepro.config.loading import load as load_workbench
        from fedrepro.config.targets import Run as Named

        bench = load_workbench(Path(root))
        named = Named(bench.setting(str(what)).name, method, 1 if seed is None else seed)
        found = [read_run(Path(root), named, landed) for landed in (False, True)]
        record = next((each for each in found if each.manifest), found[0])
        if not record.manifest:
            raise UserError(
                f"{record.folder}: {record.why}: `fedrepro run {named.setting} {named.method} "
                f"--seed {named.seed}` makes it"
            )
        folder, manifest = Path(root) / record.folder, dict(record.manifest)
    wrong = next(changed_files(folder, manifest, ".parquet"), None)
    if wrong:
        raise UserError(f"{folder}: damaged: {wrong}")
    return Run(folder, manifest)


def _manifest(folder: Path) -> dict[str, Any]:
    import json

    path = folder / "manifest.json"
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not the manifest of a finished run: {error}") from None
    return found


def methods() -> "pd.DataFrame":
    """All that a composition can name: name, kind, paper, hyperparameters with their defaults."""
    import pandas as pd

    from fedrepro.methods import _registry as registry

    rows = [registry.describe(part) for part in registry.parts().values()]
    columns = ["name", "kind", "paper", "hyperparameters"]
    return pd.DataFrame(rows, columns=columns).set_index("name").sort_index()


Group = Run | Sequence[Run]  # one run, or several that differ in their seed


def compare(
    runs: Sequence[Group] | Mapping[str, Group], of: str | None = None, last: int = 1
) -> "pd.DataFrame":
    """What runs came to: the mean of their last rounds, over seeds.

    Args:
        runs: runs, or lists of those that differ in their seed; as a mapping, with their names.
        of: a column of ``rounds``; without, the accuracy on test samples, or on clients' own.
        last: how many evaluated rounds count.

    Returns:
        Of each: seeds (how many), mean, std (over seeds; NaN of one), and ``gain``, the mean
        difference from the first one, seed by seed where both have the same, else of the means.
    """
    import pandas as pd

    named = _named(runs)
    column = of or _score(group[0] for group in named.values())
    ends = {
        name: pd.Series(
            {run.seed: _column(run, column).tail(last).mean() for run in group}, dtype=float
        )
        for name, group in named.items()
    }
    first = next(iter(ends.values()))
    rows = {
        name: {
            "seeds": len(end),
            "mean": end.mean(),
            "std": end.std(),
            "gain": (end - first).mean()
            if set(end.index) == set(first.index)
            else end.mean() - first.mean(),
        }
        for name, end in ends.items()
    }
    found = pd.DataFrame.from_dict(rows, orient="index").astype({"seeds": int})
    return found.rename_axis(column)


def plot(
    runs: Sequence[Group] | Mapping[str, Group], of: str | None = None
) -> "alt.LayerChart | alt.FacetChart":
    """Learning curves: the mean over seeds of each, and the range of the seeds.

    Args:
        runs: as of :func:`compare`.
        of: a column of ``rounds``.
    """
    import altair as alt
    import pandas as pd

    named = _named(runs)
    column = of or _score(group[0] for group in named.values())
    rows = [
        {"run": name, "round": int(number), "value": value}
        for name, group in named.items()
        for run in group
        for number, value in zip(run.rounds["round"], _column(run, column), strict=True)
    ]
    base = alt.Chart(pd.DataFrame(rows)).encode(
        x=alt.X("round:Q", title="round"), color=alt.Color("run:N", sort=list(named), title=None)
    )
    scale = alt.Scale(zero=False)
    line = base.mark_line().encode(
        y=alt.Y("mean(value):Q", title=column.replace("_", " "), scale=scale)
    )
    band = base.mark_area(opacity=0.2).encode(
        y=alt.Y("min(value):Q", scale=scale), y2="max(value):Q"
    )
    return alt.layer(band, line)


def _named(runs: Sequence[Group] | Mapping[str, Group]) -> dict[str, list[Run]]:
    """Each group of runs by a name; without one, by the method, and the seed if that is shared.

    Raises:
        UserError: when there are none.
    """
    if isinstance(runs, Mapping):
        found = {str(name): _listed(group) for name, group in runs.items()}
    else:
        groups = [_listed(each) for each in runs]
        alike = [group[0].method for group in groups]
        found = {
            group[0].method
            if alike.count(group[0].method) == 1
            else f"{group[0].method} {number}": group
            for number, group in enumerate(groups, 1)
        }
    if not found or not all(found.values()):
        raise UserError("fedrepro: runs: expected at least one")
    return found


def _listed(group: Group) -> list[Run]:
    return [group] if isinstance(group, Run) else list(group)


def _score(runs: Iterator[Run]) -> str:
    """The accuracy that all of some runs have."""
    tables = [run.rounds for run in runs]
    for name in ("test_accuracy", "client_accuracy"):
        if all(name in table and table[name].notna().any() for table in tables):
            return name
    raise UserError("fedrepro: runs: no accuracy that all have: say which column with `of`")


def _column(run: Run, name: str) -> "pd.Series[float]":
    known = list(map(str, run.rounds))
    if name not in known:
        raise bad_value("fedrepro", "of", name, f"one of {', '.join(known)}", known)
    return run.rounds[name]
