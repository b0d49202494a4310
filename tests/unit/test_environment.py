"""pyproject.toml, requirements.lock and environment.yml must not drift apart."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from support.places import ROOT

PYTHON = "3.11"
PLATFORMS = [
    {"python_full_version": "3.11.9", "python_version": PYTHON, **platform}
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


@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda platform: platform["sys_platform"])
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


def test_the_lock_was_made_for_this_python_and_all_platforms():
    header = (ROOT / "requirements.lock").read_text().split("\n", 3)[1]
    assert f"--python-version {PYTHON}" in header
    assert "--universal" in header
    assert "--generate-hashes" in header


def test_one_python_everywhere(project):
    wanted = SpecifierSet(project["project"]["requires-python"])
    minor = int(PYTHON.split(".")[1])
    assert wanted.contains(f"{PYTHON}.0")
    assert not wanted.contains(f"3.{minor - 1}.0")
    assert not wanted.contains(f"3.{minor + 1}.0")
    assert f"--python-version {PYTHON} " in (ROOT / "Makefile").read_text()
    assert f"!= (3, {minor})" in (ROOT / "scripts/find-python").read_text()


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


def test_conda_users_get_the_same_python_and_the_same_pins():
    names = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    assert names == [f"python={PYTHON}", "pip", {"pip": ["-r requirements.lock"]}]
