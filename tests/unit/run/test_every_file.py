"""Every kind of file that a number goes through: damaged, swapped and removed.

Each time `fedrepro verify` names it, and what reads it fails with a line, says so on the page, or
makes the number again. A kind of file that is not known here fails.
"""

import fcntl
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pyarrow.parquet
import pytest

import fedrepro as fr
from fedrepro.cli.main import main
from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey
from fedrepro.report import site
from fedrepro.report.cells import tables
from fedrepro.report.papers import published
from fedrepro.run.integrity import Check
from fedrepro.run.results import find_run, read_run
from fedrepro.support import checksummed_json
from fedrepro.support.errors import UserError
from fedrepro.support.files import sha256_of
from support import every_file
from support.manifests import write_manifest
from support.refusals import refused

RUN = "results/runs/ima"
TRUNK = "results/trunks/ima/kept/scaffold"
LANDED = f"reports/papers/{every_file.LANDED[0]}"
REFERENCE = "reports/papers/ima/reference/kept/fedprox"

# --- what reads a file: what it found, as text; UserError for a line and exit status 2 ------------


def table(item: str) -> str:
    """The cells of a table; a hole and its reason are in them."""
    bench = load()
    target = bench.table("ima", item)
    return tables.compute(bench, target, published.load(Path())).to_json()


def page(item: str) -> str:
    bench = load()
    return site.write_page(bench, bench.target("ima", item), published.load(Path())).read_text()


def landscape() -> str:
    path = Path("results/landscapes/ima/kept/fedavg/seed1.json")
    return _made(path, "landscape", "ima/kept", "fedavg", "--seed", "1")


def through() -> str:
    path = Path("results/landscapes/ima/kept/fedavg/seed1/4.1-4.2-4.3_3x100.json")
    return _made(path, *every_file.ANALYSES[2])


def trained(setting: str = "kept", method: str = "fedavg", seed: int = 1) -> str:
    """A run that is made now."""
    folder = RunKey(f"ima/{setting}", method, seed).folder
    shutil.rmtree(folder)
    return _made(folder / "rounds.parquet", "run", f"ima/{setting}", method, "--seed", str(seed))


def continued() -> str:
    """A child run that is made now, from what its parent run kept."""
    return trained(method="ima+scaffold")


def fetched() -> str:
    shutil.rmtree("results/data/mnist5k")
    return _made(Path("results/data/mnist5k/train_x.npy"), "prepare", "mnist5k")


def model() -> str:
    return str(fr.load("ima/kept", "fedavg", 1).model.state_dict())


def reference() -> str:
    record = read_run(Path(), RunKey("ima/kept", "fedprox", 1), reference=True)
    return f"{record.why} {record.rounds}"


def landed() -> str:
    record = find_run(Path(), RunKey("aaggff/compact-silos", "fedavg", 1))
    return f"{record.why} {record.rounds} {record.clients}"


def timing() -> str:
    """Without a time, or with that of the run."""
    found = dict(read_run(Path(), RunKey("ima/kept", "fedavg", 1)).timing)
    return str(found or "damaged")


def _made(path: Path, *words: str) -> str:
    status = main([*words])
    if status:
        raise UserError(f"exit status {status}")
    return sha256_of(path)


# --- every kind -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """Files of a kind, one of them, another, and what reads the first.

    Attributes:
        needed: whether `verify` names it when it is not there; else it is made when needed.
    """

    pattern: str
    one: str
    other: str
    read: tuple[Callable[[], str], ...]
    needed: bool = True


def of_run(name: str, *read: Callable[[], str], other: str = "kept/fedavg/seed2") -> Kind:
    return Kind(f"{RUN}/*/{name}", f"{RUN}/kept/fedavg/seed1/{name}", f"{RUN}/{other}/{name}", read)


def first() -> str:
    return table("table_1")


KINDS = {
    "manifest": of_run("manifest.json", first, model, landscape),
    "manifest of another method": of_run(
        "manifest.json", first, model, other="kept/scaffold/seed1"
    ),
    "rounds": of_run("rounds.parquet", first, model),
    "clients": of_run("clients.parquet", first, model),
    "model": of_run("model.safetensors", model, landscape),
    "timing": of_run("timing.json", timing),
    "kept model": Kind(
        f"{RUN}/*/round*-c*.safetensors",
        f"{RUN}/kept/fedavg/seed1/round4-client0.safetensors",
        f"{RUN}/kept/fedavg/seed1/round4-client1.safetensors",
        (through,),
    ),
    "kept global model": Kind(
        f"{RUN}/*/round*-global.safetensors",
        f"{RUN}/kept/fedavg/seed1/round4-global.safetensors",
        f"{RUN}/kept/fedavg/seed1/round3-global.safetensors",
        (through,),
    ),
    "images": Kind(
        f"{RUN}/*/round*-images.safetensors",
        f"{RUN}/digits/painter/seed1/round2-images.safetensors",
        f"{RUN}/digits/painter/seed1/round1-images.safetensors",
        (lambda: page("figure_5"),),
    ),
    "decisions": Kind(
        f"{RUN}/*/decisions.parquet",
        f"{RUN}/held/aaggff+fedavg/seed1/decisions.parquet",
        f"{RUN}/held/aaggff+fedavg/seed2/decisions.parquet",
        (
            lambda: _made(
                Path("results/regrets/ima/held/aaggff+fedavg/seed1.json"), *every_file.ANALYSES[4]
            ),
        ),
    ),
    "partition": Kind(
        "results/partitions/*.npz",
        "results/partitions/mnist5k/iid-clients4-test0.2/seed1.npz",
        "results/partitions/mnist5k/iid-clients4-test0.2/seed2.npz",
        (lambda: trained("digits", "painter"),),
        needed=False,
    ),
    "histogram": Kind(
        "results/partitions/*.json",
        "results/partitions/mnist5k/shards-clients5-classes2-dealt1/seed1.json",
        "results/partitions/mnist5k/shards-clients5-classes2-dealt1/seed2.json",
        (lambda: page("figure_7"), trained),
    ),
    "prepared data": Kind(
        "results/data/*/meta.json",
        "results/data/mnist5k/meta.json",
        "results/data/other/meta.json",
        (trained,),
        needed=False,
    ),
    "array": Kind(
        "results/data/*.npy",
        "results/data/mnist5k/train_x.npy",
        "results/data/mnist5k/test_x.npy",
        (landscape, trained),
    ),
    "download": Kind(
        "results/downloads/*/files.json",
        "results/downloads/mnist5k/files.json",
        "results/downloads/other/files.json",
        (fetched,),
        needed=False,
    ),
    "raw file": Kind(
        "results/downloads/*",
        "results/downloads/mnist5k/mnist_5k.csv",
        "results/downloads/mnist5k/files.json",
        (fetched,),
    ),
    "kept checkpoint": Kind(
        "results/trunks/*/about.json",
        f"{TRUNK}/seed1/round2/about.json",
        f"{TRUNK}/seed2/round2/about.json",
        (continued,),
        needed=False,
    ),
    "its state": Kind(
        "results/trunks/*/checkpoint.safetensors",
        f"{TRUNK}/seed1/round2/checkpoint.safetensors",
        f"{TRUNK}/seed2/round2/checkpoint.safetensors",
        (continued,),
    ),
    "its clients": Kind(
        "results/trunks/*/clients/*.safetensors",
        f"{TRUNK}/seed1/round2/clients/0.1.safetensors",
        f"{TRUNK}/seed2/round2/clients/0.1.safetensors",
        (continued,),
    ),
    "table": Kind(
        "results/tables/*.json",
        "results/tables/paper/ima/table_1.json",
        "results/tables/paper/ima/table_2.json",
        (lambda: page("table_1"),),
        needed=False,
    ),
    **{
        kind: Kind(f"results/{kind}/*.json", f"results/{kind}/{one}", f"results/{kind}/{other}",
                   (lambda figure=figure: page(figure),), needed=False)
        for kind, one, other, figure in (
            ("landscapes", "ima/kept/fedavg/seed1.json", "ima/kept/fedavg/seed2.json", "figure_1"),
            ("regrets", "ima/held/aaggff+fedavg/seed1.json", "ima/held/aaggff+fedavg/seed2.json",
             "figure_4"),
            ("quality", "ima/digits/painter/seed1.json", "ima/digits/painter/seed2.json",
             "figure_5"),
            ("decompositions", "ima/kept/fedavg/seeds1-2_100.json",
             "ima/kept/fedavg/seeds2-1_100.json", "figure_3"),
            ("studies", "fedevg_assumption.json", "other.json", "figure_6"),
        )
    },
    "plane": Kind(
        "results/landscapes/*/*_*.json",
        "results/landscapes/ima/kept/fedavg/seed1/4.1-4.2-4.3_3x100.json",
        "results/landscapes/ima/kept/fedavg/seed2/4.1-4.2-4.3_3x100.json",
        (lambda: page("figure_2"),),
        needed=False,
    ),
    "quality in a table": Kind(
        "results/quality/*.json",
        "results/quality/ima/digits/painter/seed1.json",
        "results/quality/ima/digits/painter/seed2.json",
        (lambda: table("table_2"),),
        needed=False,
    ),
    "pairs": Kind(
        "results/quality/*.pairs.safetensors",
        "results/quality/ima/digits/painter/seed1.pairs.safetensors",
        "results/quality/ima/digits/painter/seed2.pairs.safetensors",
        (lambda: page("figure_5"),),
    ),
    **{
        f"reference {name}": Kind(
            f"{REFERENCE}/*/{name}", f"{REFERENCE}/seed1/{name}", f"{REFERENCE}/seed2/{name}",
            (reference, first),
        )
        for name in ("manifest.json", "rounds.parquet")
    },
    "reference clients": Kind(
        f"{REFERENCE}/*/clients.parquet", f"{REFERENCE}/seed1/clients.parquet",
        f"{REFERENCE}/seed2/clients.parquet", (reference,),
    ),
    **{
        f"landed {name}": Kind(
            f"reports/papers/*/compact/*/{name}", f"{LANDED}/{name}", f"{LANDED}-fmnist/{name}",
            (landed,),
        )
        for name in ("runs.parquet", "rounds.parquet", "clients.parquet", "decisions.parquet")
    },
    **{
        f"printed {name}": Kind(
            f"reports/papers/*/{name}", f"reports/papers/ima/{name}",
            f"reports/papers/aaggff/{name}", (),
        )
        for name in ("cells.csv", "notes.csv", "figures.csv")
    },
    "printed words.csv": Kind(
        "reports/papers/*/words.csv", "reports/papers/fedgo/words.csv",
        "reports/papers/fedgo/cells.csv", (),
    ),
    "record of what was landed": Kind(
        "reports/papers/*/landed.json", "reports/papers/ima/landed.json",
        "reports/papers/aaggff/landed.json", (), needed=False,  # a paper of one's own has none
    ),
    "reference timing": Kind(
        f"{REFERENCE}/*/timing.json", f"{REFERENCE}/seed1/timing.json",
        f"{REFERENCE}/seed2/timing.json", (),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Path]:
    """A world and what is read in it, once also when several processes run these tests."""
    base = tmp_path_factory.getbasetemp()
    place = (base if worker_id == "master" else base.parent) / "every"  # the same for all processes
    place.mkdir(exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "whole.json").exists():
            make(place / "world")
            found = read_in(place / "world", place / "copy")
            (place / "whole.json").write_text(json.dumps(found))
    before = contents(place / "world")
    yield place
    assert contents(place / "world") == before, "a file was changed in place"


def make(root: Path) -> None:
    root.mkdir()
    every_file.make(root)
    for folder, name in (("data", "meta"), ("downloads", "files")):  # of another data set
        other = root / "results" / folder / "other"
        shutil.copytree(other.with_name("mnist5k"), other)
        file = other / f"{name}.json"
        checksummed_json.write(file, checksummed_json.parsed(file), f"{folder}/other/{name}")


@pytest.fixture(scope="module")
def world(made: Path) -> Path:
    return made / "world"


def contents(root: Path) -> dict[Path, tuple[str, int]]:
    """The hash of every file, and when it was changed."""
    files = (path for path in root.rglob("*") if path.is_file())
    return {path: (sha256_of(path), path.stat().st_mtime_ns) for path in files}


@pytest.fixture
def here(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, in which the test stands, by links: whatever is written replaces its file."""
    stand_in_copy(world, tmp_path, monkeypatch)
    return tmp_path


def stand_in_copy(world: Path, root: Path, patch: pytest.MonkeyPatch) -> None:
    shutil.copytree(world, root, copy_function=os.link, dirs_exist_ok=True)
    every_file.stand_in(root, patch)


def faults() -> list[str]:
    return [*Check(Path("results"), full=True).faults(), *Check(Path("reports")).faults()]


# Files that no number is read from, and the files of a paper, which are in git.
NOT_READ = (
    "results/logs/*", "results/report/*", "reports/site/*", "reports/templates/*",
    "reports/papers/[!/]*.yaml", "reports/papers/README.md", "reports/papers/*/captions/*",
    "reports/papers/*/[!/]*.yaml",
)  # fmt: skip


def test_every_file_is_of_a_known_kind(world: Path) -> None:
    patterns = (*(kind.pattern for kind in KINDS.values()), *NOT_READ)
    for top in ("results", "reports"):
        for path in (world / top).rglob("*"):
            name = path.relative_to(world).as_posix()
            if path.is_file() and not any(part.startswith(".") for part in path.parts):
                assert any(fnmatch(name, pattern) for pattern in patterns), name


def test_a_whole_tree_has_no_faults(here: Path) -> None:
    assert faults() == []


def damage(one: Path) -> None:
    """Another digit, or another bit that counts, in the middle of a file."""
    content = bytearray(one.read_bytes())
    digits = [match.start() for match in re.finditer(rb"\d", content)]
    middle = len(content) // 2
    if one.suffix == ".json":
        place = min(digits, key=lambda at: abs(at - middle))
        content[place] = ord("1") if content[place] != ord("1") else ord("2")
    elif one.suffix == ".parquet":  # some bits are of statistics that nobody reads
        right = parquet_in(bytes(content))
        for place in range(middle, len(content)):
            content[place] ^= 1
            if parquet_in(bytes(content)) != right:
                break
            content[place] ^= 1
    else:
        content[middle] ^= 1
    replace(one, bytes(content))


def replace(one: Path, content: bytes) -> None:
    """Write another file in a file's place: its content has other links."""
    one.unlink()
    one.write_bytes(content)


def parquet_in(content: bytes) -> str:
    """The values in a Parquet file's content, or why it cannot be read."""
    try:
        return repr(pyarrow.parquet.read_table(io.BytesIO(content)).to_pydict())
    except Exception as error:  # pyarrow raises many exception types
        return repr(error)


def change(one: Path, other: Path, how: str) -> None:
    """Change a file and leave its times."""
    times = one.stat()
    if how == "removed":
        one.unlink()
        return
    if how == "swapped":
        assert one.read_bytes() != other.read_bytes()
        replace(one, other.read_bytes())
    else:
        damage(one)
    os.utime(one, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.fixture(scope="module")
def whole(made: Path) -> dict[object, str]:
    """What is read of files as they should be."""
    return dict(zip(every_read(), json.loads((made / "whole.json").read_text()), strict=True))


def every_read() -> list[Callable[[], str]]:
    """In the same order in every process."""
    kinds = (*KINDS.values(), *FOLDERS)
    return [*dict.fromkeys(read for kind in kinds for read in kind.read)]


def read_in(world: Path, copy: Path) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        stand_in_copy(world, copy, patch)
        return [read() for read in every_read()]


def refuse_use(read: Callable[[], str], right: str) -> None:
    """A line, a word on the page, or the same number made again."""
    try:
        found = read()
    except UserError:
        return
    assert "damaged" in found or found == right


@pytest.mark.parametrize("how", ["damaged", "swapped", "removed"])
@pytest.mark.parametrize("name", KINDS)
def test_a_file_that_is_not_as_it_was_is_noticed(
    here: Path, whole: dict[object, str], name: str, how: str
) -> None:
    kind = KINDS[name]
    change(Path(kind.one), Path(kind.other), how)
    if kind.needed or how != "removed":
        assert faults(), f"{name}: verify does not see it"
    for read in kind.read:
        if how != "removed":
            refuse_use(read, whole[read])


@dataclass(frozen=True)
class Folder:
    """Several files that belong together: of one, and of another of their kind."""

    one: str
    other: str
    files: tuple[str, ...]
    read: tuple[Callable[[], str], ...]


FOLDERS = (
    Folder(f"{RUN}/kept/fedavg/seed1", f"{RUN}/kept/fedavg/seed2", ("",), (first, landscape)),
    Folder(f"{RUN}/kept/fedavg/seed1", f"{RUN}/kept/scaffold/seed1", ("",), (first, landscape)),
    Folder(f"{REFERENCE}/seed1", f"{REFERENCE}/seed2", ("",), (reference, first)),
    Folder(LANDED, f"{LANDED}-fmnist", ("",), (landed,)),
    Folder(f"{TRUNK}/seed1/round2", f"{TRUNK}/seed2/round2", ("",), (continued,)),
    Folder(
        "results/partitions/mnist5k/iid-clients4-test0.2/seed1",
        "results/partitions/mnist5k/iid-clients4-test0.2/seed2",
        (".npz", ".json"),
        (lambda: trained("digits", "painter"),),
    ),
    Folder(
        "results/quality/ima/digits/painter/seed1",
        "results/quality/ima/digits/painter/seed2",
        (".json", ".pairs.safetensors"),
        (lambda: table("table_2"), lambda: page("figure_5")),
    ),
)


@pytest.mark.parametrize("folder", FOLDERS, ids=[each.other for each in FOLDERS])
def test_a_folder_of_another_is_noticed(
    here: Path, whole: dict[object, str], folder: Folder
) -> None:
    for suffix in folder.files:
        one, other = Path(folder.one + suffix), Path(folder.other + suffix)
        if one.is_dir():
            shutil.rmtree(one)
            shutil.copytree(other, one)
        else:
            replace(one, other.read_bytes())
    assert faults()
    for read in folder.read:
        refuse_use(read, whole[read])


def test_a_manifest_without_seal_is_no_manifest(here: Path, whole: dict[object, str]) -> None:
    """Nor is one that lists no files, beside the rounds of another run."""
    path = Path(f"{RUN}/kept/fedavg/seed1/manifest.json")
    content = checksummed_json.parsed(path)
    del content["seal"]
    content["files"] = {}
    replace(path, json.dumps(content).encode())
    replace(
        path.parent / "rounds.parquet", Path(f"{RUN}/kept/fedavg/seed2/rounds.parquet").read_bytes()
    )
    assert any("seed1" in fault and "checksum" in fault for fault in faults())
    refuse_use(first, whole[first])
    with refused(names="checksum"):
        fr.load("ima/kept", "fedavg", 1)


def test_what_was_made_from_another_result_is_not_used(here: Path) -> None:
    """Tables and analyses of a run that is another one by now: another commit is enough."""
    folder = Path(f"{RUN}/kept/fedavg/seed1")
    manifest = checksummed_json.parsed(folder / "manifest.json")
    (folder / "manifest.json").unlink()
    write_manifest(folder, {**manifest, "git": None})
    for item in ("table_1", "figure_1", "figure_2", "figure_3"):
        with refused(names="ima/kept/fedavg/seed1"):
            page(item)
    assert all("ima/kept/fedavg/seed1" in fault for fault in faults()) and faults()


def test_results_of_another_configuration_are_said_to_be(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a table, on a figure's page, by `verify` and by `fr.load`; they are not faults."""
    experiment = here / "config/experiments/ima.yaml"
    words = ": batch_size"
    fr.load("ima/kept", "fedavg", 1)  # a warning would fail
    assert words not in first() + page("figure_1")
    text = experiment.read_text().replace("batch_size: 200", "batch_size: 250", 1)
    replace(experiment, text.encode())
    assert re.search(f"seed 1 [a-z ]+{words}", first())
    assert words in page("figure_1")
    with pytest.warns(UserWarning, match=words):
        fr.load("ima/kept", "fedavg", 1)
    capsys.readouterr()
    assert main(["verify"]) == 0
    assert words in capsys.readouterr().err
