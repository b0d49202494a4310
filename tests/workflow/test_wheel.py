"""The wheel, installed where there is no clone: a workbench anywhere, and a table in it."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml

from support.places import ROOT

UV = shutil.which("uv") or shutil.which("uv", path=str(ROOT / ".tools/bin"))
# The examples of a method, a model and a partition scheme of one's own, in one cell.
CELL = "results/runs/mine/skewed/my_prox/seed1/manifest.json"
TABLE = "results/tables/demo/mine/table_1.json"
PAGE = "reports/site/mine/table_1.html"


def build(source: Path, folder: Path, *targets: str) -> Path:
    """The folder with the distributions, built from a clone or an unpacked sdist."""
    words = [word for target in targets for word in ("-t", target)]
    command = [sys.executable, "-m", "hatchling", "build", *words, "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    return folder


def only(folder: Path, pattern: str = "*") -> Path:
    (found,) = folder.glob(pattern)
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel."""
    return build(ROOT, tmp_path_factory.mktemp("built"), "sdist", "wheel")


class Installed:
    """An environment with the wheel and, from elsewhere, what it depends on."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.bin = folder / "env/bin"
        self._call(folder, sys.executable, "-m", "venv", "--without-pip", "env")
        # As a plain path: no .pth file in it is read, such as that of an editable install.
        site = only(folder, "env/lib/python*/site-packages")
        (site / "others.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
        install = (UV, "pip", "install", "-q", "--offline", "--no-deps")
        self._call(folder, *install, "--python", self.bin / "python", wheel)

    def fedrepro(self, folder: Path, *arguments: object) -> str:
        return self._call(folder, self.bin / "fedrepro", *arguments)

    def python(self, folder: Path, *arguments: object) -> str:
        return self._call(folder, self.bin / "python", *arguments)

    @staticmethod
    def _call(folder: Path, *command: object) -> str:
        """What a command says, run in a folder and without this process's paths."""
        environment = {
            name: value
            for name, value in os.environ.items()
            if name != "PYTHONPATH" and not name.startswith("FEDREPRO")
        }
        called = subprocess.run(
            [str(word) for word in command],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert called.returncode == 0, called.stdout
        return called.stdout


def test_the_distributions_are_small_and_an_sdist_gives_the_same_wheel(
    built: Path, tmp_path: Path
) -> None:
    sdist, wheel = only(built, "*.tar.gz"), only(built, "*.whl")
    with tarfile.open(sdist) as archive:
        inside = archive.getnames()
        archive.extractall(tmp_path / "unpacked", filter="data")
    again = build(only(tmp_path / "unpacked"), tmp_path / "again", "wheel")
    assert only(again).read_bytes() == wheel.read_bytes()
    with ZipFile(wheel) as archive:
        packed = archive.namelist()
        said = Parser().parsestr(archive.read(next(n for n in packed if "METADATA" in n)).decode())
    # Most of it are the results of scale compact, by which claims are judged.
    assert max(sdist.stat().st_size, wheel.stat().st_size) < 26e6
    assert not [name for name in inside + packed if "/reference/" in name]
    assert [name for name in packed if "/compact/" in name]  # what claims are judged by
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {*said.get_all("Provides-Extra", [])} == {*project["optional-dependencies"]}


@pytest.mark.skipif(UV is None, reason="there is no uv, with which `make setup` installs")
def test_a_workbench_from_a_wheel_makes_its_table(built: Path, tmp_path: Path) -> None:
    installed = Installed(tmp_path, only(built, "*.whl"))
    where = installed.python(tmp_path, "-c", "import fedrepro; print(fedrepro.__file__)")
    assert where.startswith(str(tmp_path / "env"))
    assert Path(where.strip()).with_name("py.typed").is_file()  # editors and mypy use its types
    installed.fedrepro(tmp_path, "init", "my-paper", "--with", "ima")
    mine = tmp_path / "my-paper"
    assert (mine / "reports/papers/ima/cells.csv").is_file()
    # Neither has reference results.
    assert "1 papers: nothing is wrong" in installed.fedrepro(mine, "verify")
    packaged = Path(where.strip()).with_name("assets") / "reports"
    assert "5 papers: nothing is wrong" in installed.fedrepro(mine, "verify", packaged)

    file = mine / "config/experiments/mine.yaml"
    experiment = yaml.safe_load(file.read_text(encoding="utf-8"))
    experiment["settings"]["even"]["rounds"] = 1
    table = experiment["tables"]["table_1"]
    table["rows"], table["columns"] = table["rows"][1:2], table["columns"][2:]
    file.write_text(yaml.safe_dump(experiment), encoding="utf-8")
    installed.python(mine, "-m", "snakemake", "--cores", "2", PAGE)

    manifest = json.loads((mine / CELL).read_text(encoding="utf-8"))
    assert manifest["status"] == "finished"
    (cell,) = json.loads((mine / TABLE).read_text(encoding="utf-8"))["cells"]
    assert 10 < cell["paper"]["mean"] < 90
    assert (mine / "reports/site/assets/site.css").is_file()
    assert "<style>" in (mine / "results/report/mine/table_1.html").read_text(encoding="utf-8")
    listed = json.loads(installed.fedrepro(tmp_path, "--root", mine, "datasets", "--json"))
    assert {row["state"] for row in listed if row["name"] == "mnist5k"} == {"prepared"}
