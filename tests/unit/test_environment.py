"""What says which versions and packages there are must not drift apart."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

import fedrepro
from support.places import ROOT

FIRST, *_, LAST = PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = [
    {"python_full_version": f"{python}.1", "python_version": python, **platform}
    for python in PYTHONS
    for platform in (
        {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"},
        {"sys_platform": "darwin", "platform_system": "Darwin", "platform_machine": "arm64"},
    )
]


def locked(path: Path) -> list[tuple[Requirement, list[str]]]:
    """Each pinned requirement of a lock with its hashes."""
    logical = path.read_text().replace("\\\n", " ").splitlines()
    entries = [line for line in logical if line.strip() and not line.lstrip().startswith("#")]
    split = [re.split(r"\s+--hash=", entry) for entry in entries]
    return [(Requirement(pin), hashes) for pin, *hashes in split]


def applies(requirement: Requirement, platform: dict[str, str]) -> bool:
    return requirement.marker is None or requirement.marker.evaluate(platform)


@pytest.fixture(scope="module")
def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def lock() -> list[tuple[Requirement, list[str]]]:
    return locked(ROOT / "requirements.lock")


@pytest.mark.parametrize(
    "platform", PLATFORMS, ids=lambda each: f"{each['sys_platform']}-{each['python_version']}"
)
def test_the_lock_satisfies_every_dependency(project, lock, platform):
    pins = {canonicalize_name(pin.name): pin for pin, _ in lock if applies(pin, platform)}
    for text in project["project"]["dependencies"] + project["dependency-groups"]["dev"]:
        wanted = Requirement(text)
        if not applies(wanted, platform):
            continue
        pin = pins.get(canonicalize_name(wanted.name))
        assert pin, f"{text} is not in requirements.lock: run `make lock`"
        (version,) = [one.version for one in pin.specifier]
        assert wanted.specifier.contains(version, prereleases=True), (
            f"requirements.lock has {pin}, pyproject.toml wants {text}: run `make lock`"
        )


def test_the_lock_has_nothing_that_was_taken_out(project):
    """Below each pin stands who wants it; this project must still want what is there for it."""
    pins = re.split(r"^(?=[a-z0-9])", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE)
    ours = {re.split("[=;]", pin)[0].strip() for pin in pins if "fedrepro (pyproject.toml" in pin}
    texts = project["project"]["dependencies"] + project["dependency-groups"]["dev"]
    assert ours == {canonicalize_name(Requirement(text).name) for text in texts}


def test_make_installs_what_the_site_and_its_models_take(project):
    extras = project["project"]["optional-dependencies"]
    wanted = {*extras["png"], *extras["text"], *extras["vision"]}
    assert wanted <= set(project["dependency-groups"]["dev"])


def test_pytorch_ends_with_the_version_that_the_tests_see(project, lock):
    """What is not public of it may be gone, or something else, in the next one."""
    (wanted,) = [
        one
        for text in project["project"]["dependencies"]
        if (one := Requirement(text)).name == "torch"
    ]
    (pin,) = [pin for pin, _ in lock if pin.name == "torch"]
    (version,) = [one.version for one in pin.specifier]
    major, minor, *_ = Version(version).release
    assert wanted.specifier.contains(f"{major}.{minor}.9")
    assert not wanted.specifier.contains(f"{major}.{minor + 1}.0")


@pytest.mark.parametrize("name", ["requirements.lock", "scripts/uv-requirements.txt"])
def test_every_pin_is_exact_and_hashed(name):
    pins = locked(ROOT / name)
    assert pins
    for pin, hashes in pins:
        assert [one.operator for one in pin.specifier] == ["=="], pin
        assert hashes, f"{pin} has no hash"
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one.strip()) for one in hashes), pin


@pytest.mark.parametrize(
    "name", ["requirements.lock", "scripts/uv-requirements.txt", "environment.yml"]
)
def test_no_host_is_named(name):
    text = (ROOT / name).read_text()
    assert "://" not in text
    assert not re.search(
        r"--(extra-)?index-url|--find-links|--trusted-host", text.replace("--no-emit-", "")
    )


def test_what_makes_numbers_has_one_version_for_every_python(lock):
    """`multinomial` of NumPy 2.5 leaves its stream elsewhere than 2.4: partitions would differ."""
    names = [pin.name for pin, _ in lock]
    made_by = ("daqp", "numpy", "pandas", "pillow", "scikit-learn", "scipy", "torch", "torchvision")
    assert [names.count(each) for each in made_by] == [1] * len(made_by)


def test_the_lock_was_made_for_the_first_python_and_all_platforms():
    header = (ROOT / "requirements.lock").read_text().split("\n", 3)[1]
    assert f"--python-version {FIRST}" in header
    assert "--universal" in header
    assert "--generate-hashes" in header


def test_the_same_pythons_everywhere(project):
    wanted = SpecifierSet(project["project"]["requires-python"])
    assert [f"3.{minor}" for minor in range(30) if wanted.contains(f"3.{minor}.0")] == [*PYTHONS]
    assert f"--python-version {FIRST} " in (ROOT / "Makefile").read_text()
    assert " ".join(PYTHONS) in (ROOT / "scripts/pythons").read_text()
    assert project["tool"]["ruff"]["target-version"] == f"py{FIRST.replace('.', '')}"
    classifiers = project["project"]["classifiers"]
    assert [f"Programming Language :: Python :: {each}" for each in PYTHONS] == classifiers
    checks = yaml.safe_load((ROOT / ".github/workflows/check.yml").read_text())["jobs"]
    assert checks["check"]["strategy"]["matrix"]["python"] == [*PYTHONS]
    for name in ("README.md", "CONTRIBUTING.md", "Makefile", "scripts/find-python"):
        assert f"{FIRST} to {LAST}" in (ROOT / name).read_text(), name


def a_python(path: Path, minor: int, *, makes_environments: bool = True) -> str:
    """A file that answers like a Python 3 of this minor version."""
    without = "" if makes_environments else "sys.modules['ensurepip'] = None; "
    code = f"import sys; sys.version_info = (3, {minor}, 0); {without}exec(sys.argv[1])"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$2"\n')
    path.chmod(0o755)
    return str(path)


def find_python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What the script finds where PATH has nothing but these."""
    script = ["/bin/sh", str(ROOT / "scripts/find-python"), *arguments]
    environment = {"PATH": str(folder)}
    return subprocess.run(script, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("there", "found"),
    [
        ({"python3.11": 11, "python3.13": 13, "python3": 12}, "python3.13"),
        ({"python3": 12}, "python3"),
        ({"python3": 10, "python": 14}, "python"),
        ({"python3.14": 14, "python3.11": 11}, "python3.11"),  # 3.14 needs a compiler
    ],
)
def test_any_supported_python_will_do(tmp_path: Path, there: dict[str, int], found: str) -> None:
    for name, minor in there.items():
        a_python(tmp_path / name, minor)
    assert find_python(tmp_path).stdout == f"{tmp_path / found}\n"


def test_without_a_supported_python_one_line_says_so(tmp_path: Path) -> None:
    old = a_python(tmp_path / "python3", 10)
    done = find_python(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"fedrepro needs Python {FIRST} to {LAST}, which was not found.")
    assert done.stderr.count("\n") == 1
    a_python(tmp_path / "python3.13", 13)  # nothing else stands in for the one that is named
    done = find_python(tmp_path, old)
    assert done.stderr == f"fedrepro needs Python {FIRST} to {LAST}, and {old} is none of them.\n"
    assert find_python(tmp_path, "python3.12").returncode == 1


def test_a_python_that_cannot_make_environments_is_the_last_choice(tmp_path: Path) -> None:
    bare = a_python(tmp_path / "python3.13", 13, makes_environments=False)
    done = find_python(tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        f"{bare} cannot create a virtual environment. Debian, Ubuntu: sudo apt-get install"
        " python3.13-venv\n"
    )
    whole = a_python(tmp_path / "python3.12", 12)
    assert find_python(tmp_path).stdout == f"{whole}\n"


@pytest.mark.parametrize(
    ("torch", "command"),
    [
        ("", "uv pip sync --compile-bytecode --require-hashes --python .venv/bin/python "),
        ("cpu", "uv pip install -q .* --torch-backend cpu .*-c requirements.lock "),
    ],
)
def test_the_build_of_torch_is_one_variable(tmp_path: Path, torch: str, command: str) -> None:
    pins = "scripts/uv-requirements.txt"
    for name in (pins, "requirements.lock", "pyproject.toml", ".tools/uv.stamp"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    make = ["make", "-n", "-f", str(ROOT / "Makefile"), "setup", f"TORCH={torch}"]
    said = subprocess.run(make, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert re.search(command, said.replace("\\\n", " ")), said
    assert len(re.findall("uv pip (?:sync|install)", said)) == 2  # the packages, then this one


def conda(name: str) -> tuple[dict[str, SpecifierSet], list[str]]:
    """A conda environment: what conda installs, by PyPI's name, and what pip then installs."""
    *packages, last = yaml.safe_load((ROOT / name).read_text())["dependencies"]
    pip = last["pip"] if isinstance(last, dict) else []
    wanted = [Requirement(each) for each in packages + [last] * (not pip)]
    names = {"pytorch": "torch", "snakemake-minimal": "snakemake"}
    return {names.get(one.name, one.name): one.specifier for one in wanted}, pip


@pytest.mark.parametrize(
    ("name", "pip"), [("environment.yml", ["-e ."]), ("workflow/envs/fedrepro.yaml", [])]
)
def test_conda_users_get_every_dependency(project, name, pip):
    found, then = conda(name)
    assert then == pip
    assert found.pop("pip") == SpecifierSet()
    python, allowed = found.pop("python"), SpecifierSet(project["project"]["requires-python"])
    versions = [f"3.{minor}.0" for minor in range(30)]
    assert {*allowed.filter(versions)} <= {*python.filter(versions)}
    wanted = map(Requirement, project["project"]["dependencies"])
    # Of daqp, conda-forge has older versions only; pip installs it together with fedrepro.
    assert found == {one.name: one.specifier for one in wanted if one.name != "daqp"}


def test_the_image_has_what_a_wheel_is_built_from(project):
    recipe = (ROOT / "workflow/envs/Dockerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", recipe, re.MULTILINE)
    files = {file for line in copied for file in line.split()}
    assert all((ROOT / file).exists() for file in files)
    packed = project["tool"]["hatch"]["build"]["targets"]["wheel"]["include"]
    # `profiles` is a link into `workflow`; of src there is nothing else.
    expected = {name.strip("/").removesuffix("/*.md") for name in packed}
    expected = expected - {"profiles", "src/fedrepro"} | {"src"}
    assert expected < files


def test_one_version_everywhere(project):
    version = project["project"]["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert version == fedrepro.__version__ == citation["version"]
    assert f"## {version} " in (ROOT / "CHANGELOG.md").read_text()


def test_of_a_release_a_user_reads_at_most_forty_lines():
    _, *releases = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")
    assert all(len(text.splitlines()) <= 40 for text in releases if text[0].isdigit())
