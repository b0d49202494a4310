"""Configurations and command lines made wrong: one line and status 2, never a traceback."""

import contextlib
import io
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedrepro.cli.main import main
from fedrepro.config.loading import load
from fedrepro.run.assembly import method_of
from fedrepro.support.errors import UserError
from fedrepro.workflow.checks import check_given, check_methods
from support.malformed import Mutation, fuzzed, mutated, mutations, watched
from support.places import ROOT
from support.project import CONFIG, EXPERIMENT

EXPERIMENTS = sorted(path.name for path in (ROOT / "config/experiments").glob("*.yaml"))
FILES = ("config.yaml", "datasets.yaml", *(f"experiments/{name}" for name in EXPERIMENTS))
BOMB = b"a: &a [x, x, x, x, x, x, x, x, x, x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (at + 1, at + 1, b", ".join([b"*%c" % at] * 10)) for at in range(97, 110)
)
# Two seeds on the same clients, of which models are kept: what is drawn and decomposed.
KEPT = (
    EXPERIMENT.replace("clients: 4}", "clients: 4, seed: 1}", 1)
    .replace("model: logistic", "save_models_at: {fedavg: [1, 2]}\n    model: logistic", 1)
    .replace("participation: 0.5", "participation: 1.0", 1)
)
LOOP = b"a: &a {b: *a}\n"
DEEP = b"a: " + b"[" * 20000
OPENED = (b"[" * 100_000, b"- " * 100_000, b"? " * 100_000, b"{a: " * 100_000)
UNREADABLE = (BOMB, LOOP, DEEP, *OPENED, b"x" * 3_000_000)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settle(root: Path, file: str, content: bytes) -> None:
    """A project's configuration with one file replaced; of experiments there is that one alone."""
    shutil.rmtree(root / "config", ignore_errors=True)
    (root / "config/experiments").mkdir(parents=True)
    kept = ["config.yaml", "datasets.yaml", file if "/" in file else FILES[2]]
    for name in kept:
        shutil.copy(ROOT / "config" / name, root / "config" / name)
    (root / "config" / file).write_bytes(content)


def use(root: Path) -> None:
    """All that is done with a configuration before anything is trained."""
    bench = load(root)
    for scale in ("demo", "paper"):
        for target in bench.targets(scale).values():
            assert target.page
    for name, setting in bench.settings.items():
        method_of(bench.run_spec(name, "fedgo" if setting.byzantine else "fedavg", 1))
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(root / ".snakemake")
    check_methods(bench)
    check_given(bench)
    shutil.rmtree(root / ".snakemake")


@pytest.mark.parametrize("file", FILES)
def test_configurations(root: Path, file: str) -> None:
    content = (ROOT / "config" / file).read_bytes()
    settle(root, file, content)
    use(root)  # as it is, it is right

    @fuzzed(6 if len(content) > 10_000 else 15)  # the long ones are slow
    @given(mutations())
    def check(how: list[Mutation]) -> None:
        settle(root, file, mutated(content, how))
        with watched(root):
            try:
                use(root)
            finally:
                shutil.rmtree(root / ".snakemake", ignore_errors=True)

    for start in UNREADABLE if file in FILES[:3] else ():  # all experiments have one reader
        check = example([("insert", 0.0, 0.0, start)])(check)
    check()


@pytest.mark.parametrize("kind", ["folder", "pipe", "nothing"])
def test_a_configuration_that_is_no_file(root: Path, kind: str) -> None:
    for file in FILES[:3]:
        settle(root, file, b"")
        (root / "config" / file).unlink()
        if kind == "folder":
            (root / "config" / file).mkdir()
        elif kind == "pipe":
            os.mkfifo(root / "config" / file)
        with watched(root), pytest.raises(UserError):
            load(root)


WORDS = (
    "run", "partition", "prepare", "download", "datasets", "methods", "coverage", "table", "page",
    "replay", "landscape", "decompose", "site", "--seed", "--log", "--json", "--scale", "--losses",
    "--set",
    "--clients", "--cdf", "--out", "--executor", "--device", "--format", "--participants", "1",
    "-1", "0", "9" * 30, "1e3", "x=1", "tilt=nan", "tilt=-1", "ima/tiny", "ima", "table_1",
    "fedavg", "ima+fedavg", "fedavg+fedavg", "fedprox+ima", "aaggff_d", "afl", "term", "demo",
    "mnist5k", "gumbel", "losses.csv", "results", "config", ".", "..", "/", "", "\0", "x" * 300,
    "x/" * 3000, "ima+" * 500, "{}", "%s", "\udcff", "cuda", "cuda:99", "cpu", "sequential",
    "/dev/null", "results/x.log", "é", "-h", "--version", "--again",
)  # fmt: skip
USUAL = (
    ["run", "ima/tiny", "fedavg", "--seed", "1"],
    ["run", "ima/tiny", "fedavg", "--seed", "2"],
    ["partition", "ima/tiny", "--seed", "1"],
    ["prepare", "mnist5k"],
    ["table", "ima", "table_1"],
    ["page", "ima", "table_1", "--scale", "demo"],
    ["replay", "afl", "--losses", "losses.csv", "--clients", "2"],
    ["replay", "aaggff_s", "--losses", "losses.csv", "--cdf", "gumbel", "--out", "results/x"],
    ["landscape", "ima/tiny", "fedavg", "--seed", "1"],
    ["landscape", "ima/tiny", "fedavg", "--seed", "1", "--through", "1.1", "2", "--points", "3"],
    ["decompose", "ima/tiny", "fedavg", "--seeds", "1", "2"],
    ["--log", "results/a.log", "datasets"],
    ["coverage"],
)


@pytest.fixture
def project(root: Path) -> Iterator[Path]:
    (root / "config/experiments").mkdir(parents=True)
    (root / "config/config.yaml").write_text(CONFIG, encoding="utf-8")
    (root / "config/experiments/ima.yaml").write_text(KEPT, encoding="utf-8")
    shutil.copy(ROOT / "config/datasets.yaml", root / "config")
    # Without landed runs: no command here asks for them, and the watch looks at every file.
    without = shutil.ignore_patterns("site", "reference", "compact")
    shutil.copytree(ROOT / "reports", root / "reports", ignore=without)
    (root / "losses.csv").write_text("0,1\n0.5,1.5\n", encoding="utf-8")
    before = sys.stderr
    yield root
    assert sys.stderr is before


def call(arguments: list[str]) -> tuple[int, str]:
    """Exit status and what was written to stderr."""
    err = io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
        try:
            return main(arguments), err.getvalue()
        except SystemExit as error:  # argparse's
            return int(error.code or 0), ""


def test_command_lines(project: Path) -> None:
    for usual in USUAL:  # also what all later ones need: imports, data, a partition, a run
        assert call(usual)[0] == 0, usual

    @fuzzed(30)
    @given(
        st.sampled_from(USUAL),
        st.lists(
            st.tuples(
                st.sampled_from(("replace", "insert", "drop")),
                st.integers(0, 7),
                st.sampled_from(WORDS),
            ),
            max_size=3,
        ),
    )
    @example(["datasets"], [("insert", 0, "results"), ("insert", 0, "--log")])
    @example(["datasets"], [("insert", 0, "x" * 300), ("insert", 0, "--log")])
    @example(["datasets"], [("insert", 0, "x/" * 3000), ("insert", 0, "--log")])
    def check(usual: list[str], how: list[tuple[str, int, str]]) -> None:
        arguments = list(usual)
        for kind, at, word in how:
            place = at % (len(arguments) + 1)
            if kind == "insert":
                arguments.insert(place, word)
            elif place < len(arguments):
                arguments[place : place + 1] = [word] if kind == "replace" else []
        # What names a place to write to writes there, as it should: that is in results/ here.
        for at, word in enumerate(arguments[:-1]):
            place = arguments[at + 1]
            if word in ("--out", "--log") and "\0" not in place and len(place) < 200:
                inside = place.strip("./").removeprefix("results/")
                arguments[at + 1] = f"results/{inside or 'x'}"
        if "site" in arguments or "page" in arguments:  # their place is reports/site
            return
        with watched(project):
            status, said = call(arguments)
            assert status in (0, 2), (arguments, status, said)
            if status == 2 and said:
                assert said.startswith("fedrepro: ") or "--log" in arguments, said
                assert said.strip().count("\n") == 0, said

    check()
