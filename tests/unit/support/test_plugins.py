"""Methods, models and partition schemes of one's own: found, part of a run's identity, refused."""

import inspect
import os
import re
import shutil
import sys
import traceback
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedrepro.cli.main import main
from fedrepro.config.loading import load
from fedrepro.data.dataset import Dataset, Split
from fedrepro.data.partition.partition import make_partition
from fedrepro.data.partition.schemes import Count, Scheme
from fedrepro.methods import registry
from fedrepro.models import registry as models
from fedrepro.provenance import fingerprint
from fedrepro.provenance.inputs import code_of_partition
from fedrepro.run import assembly, runner
from fedrepro.support import plugins
from fedrepro.support.errors import UserError
from fedrepro.workflow import checks
from fedrepro.workflow.graph import Graph
from support.places import ROOT
from support.refusals import Fault, refused

SKELETON = ROOT / "workflow/skeleton"


@pytest.fixture
def workbench(tmp_path: Path) -> Path:
    """What `fedrepro init` writes, but for copies of the package's own files."""
    root = tmp_path / "workbench"
    shutil.copytree(SKELETON, root, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "config/datasets.yaml", root / "config")
    return root


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")


def test_the_examples_are_found_by_their_files(workbench: Path) -> None:
    bench = load(workbench)
    setting = bench.setting("mine/skewed")
    dealt = setting.partition.assign(np.array([1, 0, 1, 0, 2]), None, np.random.RandomState(1))
    assert [part.tolist() for part in dealt] == [[1], [3], [0], [2], [4]]
    assert setting.partition.name == "in_order-clients5"
    assert bench.run_spec("mine/skewed", "my_prox", 1).description()["partition"] == {
        "scheme": "in_order",
        "clients": 5,
        "test_fraction": 0.0,
        "stratified": False,
    }
    method, _ = registry.compose("ima+my_prox", {"my_prox": {"mu": 0.5}}, bench.plugins)
    assert method.inner.mu == 0.5
    model = models.build("small_mlp", (1, 4, 4), 3, folders=bench.plugins)
    assert sum(leaf.numel() for leaf in model.parameters()) == 17 * 32 + 33 * 3
    assert models.find("small_mlp", bench.plugins).family == "mlp"


def test_two_workbenches_in_one_process_have_each_their_own(
    workbench: Path, tmp_path: Path
) -> None:
    """Files of the same names, of which each workbench finds its own, whichever came last."""
    other = shutil.copytree(workbench, tmp_path / "other")
    edit(other / "models/small_mlp.py", "32", "8")
    edit(other / "methods/my_prox.py", "Your own method", "The other one's")
    edit(other / "methods/my_prox.py", "mu: float = 0.01", "mu: float = 0.5")
    edit(other / "partitions/in_order.py", "clients: Count", "clients: Count\n    also: Count = 7")
    (other / "methods/second.py").write_text((other / "methods/my_prox.py").read_text())
    first, second = load(workbench), load(other)
    for bench, wide, mu in ((first, 32, 0.01), (second, 8, 0.5), (first, 32, 0.01)):
        spec = bench.run_spec("mine/skewed", "my_prox", 1)
        method, _ = assembly.method_of(replace(spec, hyperparameters={}))
        model = models.build(spec.setting.model, (1, 4, 4), 3, folders=spec.plugins)
        assert method.mu == mu
        assert sum(leaf.numel() for leaf in model.parameters()) == 17 * wide + (wide + 1) * 3
        assert hasattr(spec.setting.partition, "also") == (bench is second)
        assert ("second" in registry.parts(bench.plugins)) == (bench is second)
        documentation = registry.parts(bench.plugins)["my_prox"].documentation
        assert ("The other one's" in documentation) == (bench is second)
    assert "small_mlp" not in models.known(load(ROOT).plugins) and "my_prox" not in registry.parts()


@pytest.mark.parametrize(
    "file",
    [
        *(f"methods/{name}.py" for name in ("fedavg", "central", "ima", "fedadam")),
        *(f"models/{name}.py" for name in ("twonn", "resnet18")),
        *(f"partitions/{name}.py" for name in ("iid", "natural", "domains")),
        *(f"measures/{name}.py" for name in ("ece", "accuracy")),
    ],
)
def test_a_built_in_name_is_refused(
    workbench: Path, file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It took the place of the package's own, or was ignored, without a word."""
    kind, name = file.removesuffix(".py").split("/")
    (example,) = (workbench / kind).glob("[a-z]*.py")
    text = example.read_text(encoding="utf-8").replace(example.stem, name)
    (workbench / file).write_text(text, encoding="utf-8")
    monkeypatch.chdir(workbench)
    for command in (["methods" if kind == "methods" else "settings"], ["plan", "--scale", "demo"]):
        assert main(command) == 2
        said = capsys.readouterr().err
        assert f"/{file}: " in said and f" {kind[:-1]} {name} " in said
        assert said.count("\n") == 1


KEYS = ("k", "share", "how", "fair", "clients", "minimum")


@settings(suppress_health_check=[HealthCheck.too_slow])  # its first draw imports much
@given(
    told=st.sets(st.sampled_from(KEYS)),
    short=st.booleans(),
    settings_of=st.lists(
        st.tuples(
            st.integers(1, 5),
            st.sampled_from((0.1, 0.5, 0.1000001, 1 / 3, 5.0)),
            st.sampled_from(("a", "b", "a/b", "5")),
            st.booleans(),
            st.integers(1, 5),
            st.sampled_from((1, 5)),
        ),
        min_size=2,
        max_size=6,
        unique=True,
    ),
)
def test_no_two_settings_share_a_partition(
    told: set[str], short: bool, settings_of: list[tuple[Any, ...]]
) -> None:
    """Whatever `_parts` of an own scheme leaves out: 69.40 was shown for 88.30."""

    class Own(Scheme):
        scheme: Literal["own"]
        clients: Count
        k: int
        share: float
        how: str
        fair: bool = False
        minimum: int = 1

        def _parts(self) -> list[str]:
            named = [key for key in KEYS if key in told and key != "fair"]
            parts = [f"{key[: short or None]}{getattr(self, key)}" for key in named]
            return ["own", *(["fair"] if "fair" in told and self.fair else []), *parts]

    names = [
        Own(scheme="own", k=k, share=share, how=how, fair=fair, clients=n, minimum=least).name
        for k, share, how, fair, n, least in settings_of
    ]
    assert len(set(names)) == len(names)


def test_a_scheme_that_tells_all_keeps_its_name() -> None:
    class Own(Scheme):
        scheme: Literal["own"]
        clients: Count
        k: int = 2
        alpha: float = 0.5

        def _parts(self) -> list[str]:
            return ["own", f"n{self.clients}", f"a{self.alpha:g}", f"k{self.k}"]

    class Called(Own):
        def _parts(self) -> list[str]:
            return ["iid", f"clients{self.clients}"]

    class Forgets(Own):
        def _parts(self) -> list[str]:
            return ["own", f"clients{self.clients}"]

    keys: dict[str, Any] = {"scheme": "own", "clients": 3, "k": 3, "alpha": 0.25}
    assert Own(**keys).name == "own-n3-a0.25-k3"
    assert Forgets(**keys).name == "own-clients3-k3-alpha0.25"
    assert Forgets(scheme="own", clients=3).name == "own-clients3"
    assert Called(**keys).name == "own-iid-clients3-k3-alpha0.25"  # not that of the scheme iid


def test_files_whose_names_begin_with_an_underscore_are_helpers(workbench: Path) -> None:
    for kind in ("methods", "models", "partitions", "measures"):
        (workbench / kind / "_shared.py").write_text("HALF = 0.5\n", encoding="utf-8")
    bench = load(workbench)
    assert list(bench.plugins.files("methods")) == ["my_prox"]
    assert not {"_shared"} & {*registry.parts(bench.plugins), *models.known(bench.plugins)}


def test_folders_and_objects_are_of_their_kind(
    workbench: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files come first; a variable replaces the folder of methods alone."""
    objects = (("losses", "x", 1), ("measures", "x", 2), ("measures", "y", 3))
    kinds = {kind: workbench / kind for kind in ("methods", "models", "measures")}
    folders = plugins.Folders(root=workbench, objects=objects, **kinds)
    assert [folders.given("measures", name) for name in "xyz"] == [2, 3, None]
    assert folders.given("losses", "x") == 1 and folders.given("losses", "y") is None
    assert folders.names("measures") == ["macro_recall", "x", "y"]
    assert folders.names("losses") == ["x"] and folders.names("models") == ["small_mlp"]
    monkeypatch.setenv(plugins.VARIABLE, str(tmp_path))
    assert folders.of("methods") == tmp_path and folders.files("methods") == {}
    assert folders.of("models") == workbench / "models" and folders.of("losses") is None
    assert plugins.NONE.of("methods") == tmp_path
    monkeypatch.setenv(plugins.VARIABLE, str(tmp_path / "gone"))
    with refused("value", key=plugins.VARIABLE, value=str(tmp_path / "gone")):
        folders.of("methods")


class Hooks:
    on_none = None

    def on_round(self, progress: int) -> None: ...

    def on_evaluation(self, round: int, scores: int = 0) -> None: ...

    def other(self) -> None: ...


@pytest.mark.parametrize(
    ("body", "refusing", "prefix"),
    [
        ({"on_raund": lambda self, progress: None}, True, None),
        ({"on_raund": lambda self, progress: None}, True, "on_"),
        ({"on_anything_else": lambda self: None}, False, None),
        ({"on_anything_else": lambda self: None}, True, "on_"),
        ({"on_anything_else": 3, "on_raund": 4}, False, "on_"),
        ({"on_round": lambda self, progress, more=1: None}, False, "on_"),
        ({"on_round": lambda self, *of: None, "helper": lambda self: None}, False, "on_"),
        ({"on_round": lambda self: None}, True, "on_"),
        ({"on_round": lambda self, progress, more: None}, True, "on_"),
        ({"on_evaluation": lambda self, scores: None}, True, "on_"),
        ({"other": lambda self, more: None}, False, "on_"),
    ],
)
@pytest.mark.parametrize("between", [False, True])
def test_a_function_that_nothing_would_call_is_refused(
    body: dict[str, Any], refusing: bool, prefix: str | None, between: bool
) -> None:
    """Also of a class that one's own extends."""
    cls = type("Own", (Hooks,), body)
    cls = type("Further", (cls,), {}) if between else cls
    with refused("value", key="hook") if refusing else nullcontext():
        plugins.refuse_uncalled(cls, Hooks, "on_", prefix)


def test_nothing_ends_the_process_as_if_it_were_done(tmp_path: Path) -> None:
    """Status 0 by whatever way; others only from a plug-in. A fork may end as it likes."""
    file = tmp_path / "quits.py"
    file.write_text("import sys\ndef quit(status):\n    sys.exit(status)\n", encoding="utf-8")
    module, exit_before = plugins.import_file("methods", file), os._exit
    for leave, blamed in (
        (lambda: module.quit(0), True), (lambda: module.quit(3), True),
        (lambda: os._exit(0), False), (lambda: sys.exit(0), False), (lambda: sys.exit(), False),
    ):  # fmt: skip
        place = {"file": f"{file}:3", "key": "quit"} if blamed else {"key": ""}
        with refused(**place), plugins.no_exit(), plugins.no_exit():
            leave()
        assert os._exit is exit_before
    for leave in (lambda: sys.exit(3), lambda: os._exit(3)):
        with pytest.raises(SystemExit) as ended, plugins.no_exit():
            leave()
        assert ended.value.code == 3
    with plugins.no_exit():
        child = os.fork()
        if child == 0:
            os._exit(5)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5


def test_the_first_file_that_was_edited_since_it_was_read_is_named(tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.py" for name in "abc"]
    for file in files:
        file.write_text("x = 1\n", encoding="utf-8")
        plugins.content_of(file)
    assert plugins.changed_since_import(files) is None
    files[2].unlink()
    assert plugins.changed_since_import(files) == files[2]
    files[1].write_text("x = 2\n", encoding="utf-8")
    assert plugins.changed_since_import(files) == files[1]
    assert plugins.changed_since_import(files[:1]) is None


def test_each_workbench_s_own_file_is_blamed(workbench: Path, tmp_path: Path) -> None:
    """Whichever file of that name came last."""
    files = [root / "methods/broken.py" for root in (workbench, tmp_path / "other")]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("def fail():\n    raise KeyError(1)\n", encoding="utf-8")
    modules = [plugins.import_file("methods", file) for file in files]
    for file, module in zip(files, modules, strict=True):
        with refused(file=f"{file}:2", key="fail", names=("KeyError", "1")), plugins.blamed():
            module.fail()


@pytest.mark.parametrize(("text", "line"), [(b"x = (\n", ":1"), (b"x = 1\0\n", "")])
def test_a_syntax_error_names_a_line_if_there_is_one(
    tmp_path: Path, text: bytes, line: str
) -> None:
    file = tmp_path / "own.py"
    file.write_bytes(text)
    with refused("damaged", file=f"{file}{line}"):
        plugins.import_file("methods", file)


def test_a_code_file_is_read_in_the_encoding_that_it_names(tmp_path: Path) -> None:
    """Its page ended in a traceback, as did one with a comment in another encoding."""
    text = "# coding: latin-1\nx = 'André'\n"
    (tmp_path / "own.py").write_text(text, encoding="latin-1")
    assert plugins.source_of(tmp_path / "own.py") == text
    assert plugins.import_file("methods", tmp_path / "own.py").x == "André"
    code = "\f\x0b\r\nclass Own:\r\n    x = 1  # André\r\n"  # of which Python makes three lines
    (tmp_path / "remark.py").write_text(f"#é{code}", encoding="latin-1", newline="")
    own = plugins.import_file("methods", tmp_path / "remark.py").Own
    (tmp_path / "remark.py").unlink()  # what is shown is what was executed
    assert own.x == 1 and "    x = 1  # Andr" in inspect.getsource(own)
    (tmp_path / "text.py").write_text("\nx = 'é'\n", encoding="latin-1")
    with refused("damaged", file="text.py:2"):
        plugins.import_file("methods", tmp_path / "text.py")


def test_a_folder_s_name_need_not_be_utf_8(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"lat\xe9in")
    folder.mkdir()
    (folder / "own.py").write_text("x = 1\n", encoding="utf-8")
    assert plugins.import_file("methods", folder / "own.py").x == 1


def test_of_several_functions_the_one_that_failed_is_blamed(tmp_path: Path) -> None:
    """Not who called it, nor the library that it called."""
    file = tmp_path / "deep.py"
    text = "import json\ndef read(text):\n    return json.loads(text)\n"
    file.write_text(f"{text}def call(text):\n    return read(text)\n", encoding="utf-8")
    module = plugins.import_file("methods", file)
    for function in (module.read, module.call, lambda text: [*map(module.call, [text])]):
        with refused(file=f"{file}:3", key="read", names="JSONDecodeError"), plugins.blamed():
            function("{")


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("models/small_mlp.py", "nn.ReLU()", "nn.Tanh()"),
        ("methods/my_prox.py", "self.mu / 2", "self.mu"),
        ("measures/macro_recall.py", "hit[targets == label].mean()", "hit[targets == label].min()"),
    ],
)
def test_what_is_of_ones_own_is_part_of_a_runs_identity(
    workbench: Path, tmp_path: Path, file: str, old: str, new: str
) -> None:
    other = shutil.copytree(workbench, tmp_path / "other")  # what a file holds is read once
    edit(other / file, old, new)
    before, after = (
        fingerprint.of_code(load(root).run_spec("mine/skewed", "my_prox", 1))
        for root in (workbench, other)
    )
    assert before != after


def test_a_changed_scheme_deals_again(workbench: Path, tmp_path: Path) -> None:
    other = shutil.copytree(workbench, tmp_path / "other")
    edit(other / "partitions/in_order.py", 'kind="stable"', 'kind="heapsort"')
    own = SimpleNamespace(dataset="mnist5k", partition="in_order-clients5", seed="1")
    plain = SimpleNamespace(dataset="mnist5k", partition="iid-clients5", seed="1")
    codes = []
    for bench in map(load, (workbench, other)):
        settings = [bench.setting(Graph(bench).setting_of_partition(each)) for each in (own, plain)]
        codes.append([code_of_partition(setting, bench.plugins) for setting in settings])
    (before, same), (after, still) = codes
    assert before != after and same == still


def test_a_partition_that_no_setting_has_is_one_line(
    workbench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wildcards = SimpleNamespace(dataset="mnist5k", partition="in_order-clients6")
    with pytest.raises(SystemExit):
        Graph(load(workbench)).setting_of_partition(wildcards)
    said = capsys.readouterr().err
    assert "partition: 'in_order-clients6': " in said and said.endswith("'in_order-clients5'?\n")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("file", "old", "new", "fault"),
    [
        (
            "config/config.yaml",
            "models: models",
            "models: nowhere",
            Fault(code="value", file="config.yaml", key="plugins.models", value="nowhere"),
        ),
        (
            "config/experiments/mine.yaml",
            "model: small_mlp",
            "model: small_mpl",
            Fault(code="value", key="settings.skewed.model", near="small_mlp"),
        ),
        (
            "config/experiments/mine.yaml",
            "scheme: in_order, clients: 5",
            "scheme: in_order, clients: 0",
            Fault(code="value", key="settings.skewed.partition.clients", value=0),
        ),
        (
            "config/experiments/mine.yaml",
            "scheme: in_order, clients: 5",
            "scheme: in_order, clients: 5, alpha: 1",
            Fault(code="unknown_key", key="settings.skewed.partition.alpha"),
        ),
        (
            "models/small_mlp.py",
            "def small_mlp",
            "def small",
            Fault(code="missing", file="models/small_mlp.py", key="small_mlp"),
        ),
        (
            "models/small_mlp.py",
            '"mlp"',
            '"mpl"',
            Fault(code="value", key="FAMILY", value="mpl", near="mlp"),
        ),
        ("partitions/in_order.py", "(Scheme)", "", Fault(file="in_order.py", value=0)),
        (
            "partitions/in_order.py",
            "def assign(",
            "def dealt(",
            Fault(file="in_order.py", value=1, names="`assign`"),
        ),
        (
            "partitions/in_order.py",
            "import numpy",
            "import numpi",
            Fault(names=("in_order.py:5", "ModuleNotFoundError", "'numpi'")),
        ),
    ],
)
def test_a_mistake_is_one_line(
    workbench: Path, file: str, old: str, new: str, fault: Fault
) -> None:
    edit(workbench / file, old, new)
    with refused(**fault):
        models.find("small_mlp", load(workbench).plugins)


@pytest.mark.parametrize(
    ("task", "new", "fault"),
    [
        ("classification", "32, outputs - 1", Fault(key="outputs", value=2, names="3")),
        ("binary", "32, 2", Fault(key="outputs", value=2, names="1")),
        ("binary", "31, 1", Fault(names=("small_mlp", "[4]", "torch.float32", "mat1"))),
    ],
)
def test_a_model_that_does_not_fit_the_data_is_one_line(
    workbench: Path, tmp_path: Path, task: str, new: str, fault: Fault
) -> None:
    edit(workbench / "models/small_mlp.py", "32, outputs", new)
    spec = load(workbench).run_spec("mine/skewed", "fedavg", 1)
    y = np.arange(20) % (2 if task == "binary" else 3)
    samples = Split(np.ones((20, 4), np.float32), y, None)
    classes = int(y.max()) + 1
    data = Dataset("mine", task, classes, (4,), samples, samples, None, None, {})
    partition = make_partition(y, None, spec.setting.partition, 1)
    with refused(**fault):
        runner.run(spec, data, partition, tmp_path / "run", "code")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("text", ["def broken(:", "import nothing_of_this_name", "odd = 1"])
def test_a_broken_file_stops_only_who_uses_it(
    workbench: Path, text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in ("methods", "models"):
        (workbench / kind / "broken.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(workbench)
    bench = load(workbench)
    method, _ = registry.compose("my_prox", {}, bench.plugins)
    assert type(method).__name__ == "MyProx"
    assert models.find("small_mlp", bench.plugins).family == "mlp"
    checks.check_methods(bench)
    assert not capsys.readouterr().err
    for command, mine in (("methods", "my_prox"), ("models", "small_mlp")):
        assert main([command]) == 0
        out, err = capsys.readouterr()
        assert f"\n{mine}\t" in out and "\nbroken\t" not in out
        assert re.fullmatch(rf"fedrepro: .*{command}/broken\.py:? ?.+\n", err)
        assert main([command, "broken"]) == 2
        assert re.fullmatch(rf"fedrepro: .*{command}/broken\.py.+\n", capsys.readouterr().err)
    with pytest.raises(UserError, match=r"methods/broken\.py"):
        registry.compose("ima+broken", {}, bench.plugins)
    edit(workbench / "config/experiments/mine.yaml", "method: my_prox", "method: broken")
    with pytest.raises(UserError, match=r"methods/broken\.py"):
        checks.check_methods(load(workbench))


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_a_plug_in_that_is_no_file_is_one_line(tmp_path: Path, kind: str) -> None:
    """Reading a named pipe would wait for ever."""
    path = tmp_path / "own.py"
    os.mkfifo(path) if kind == "pipe" else path.mkdir()
    with refused("unreadable", file="own.py", names="file"):
        plugins.import_file("methods", path)
    with refused("unreadable", file="own.py"):
        plugins.Folders(methods=tmp_path).files("methods")


def test_what_the_compiler_could_not_trace_is_blamed(tmp_path: Path) -> None:
    """PyTorch's compiler raises far from the plug-in's line, and keeps the line in its stack."""
    file = tmp_path / "methods/traced.py"
    file.parent.mkdir()
    file.write_text("x = 1\n", encoding="utf-8")
    plugins.import_file("methods", file)
    ours, theirs = (
        traceback.FrameSummary(str(each), line, "client_update", lookup_line=False)
        for each, line in ((file, 12), (Path(torch.__file__), 7))
    )

    def failed(stack: list[traceback.FrameSummary]) -> str:
        error = UserError("executor: it failed", code="value")
        error.__cause__ = RuntimeError("unsupported")
        vars(error.__cause__)["real_stack"] = stack
        with refused("value") as caught, plugins.blamed():
            raise error
        return str(caught.value)

    assert failed([theirs, ours]) == f"{file}:12: client_update: executor: it failed"
    assert failed([theirs]) == "executor: it failed"
