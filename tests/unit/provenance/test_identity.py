"""The one rule by which a result is, or is not, the one that would be made now."""

import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedrepro.provenance import fingerprint, identity
from fedrepro.provenance.identity import Identity, Meaning, differences, identity_of
from support.tiny_run import run_spec

MANIFEST: dict[str, Any] = {
    "run": {"setting": "a/b", "method": "fedavg", "seed": 1, "optimizer": {"lr": 0.1}},
    "numerics": {"core": "1", "method fedavg": "2"},
    "code": "fingerprint",
    "arithmetic": "per client",
    "dtype": "float32",
    "data": {"content_sha256": "x", "partition_sha256": "y", "given": {"generator": "z"}},
    "packages": {"fedrepro": "0.2.0", "torch": "2.15.0", "numpy": "2.4.6", "pandas": "3.1.1"},
    "hardware": {
        "machine": "x86_64", "system": "Linux", "python": "3.11.7", "processor": "one",
        "cores": 2, "vector_instructions": "AVX2", "accelerator": "GPU one",
    },
}  # fmt: skip


def changed(section: str, key: str | None, value: Any) -> Identity:
    whole = value if key is None else {**MANIFEST[section], key: value}
    return Identity.of({**MANIFEST, section: whole})


def leaf(value: Any) -> str:
    """The one value in nested keys, as text."""
    return leaf(*value.values()) if isinstance(value, dict) else str(value)


def gravest(other: Identity) -> Meaning | None:
    listed = differences(Identity.of(MANIFEST), other)
    return max((each.meaning for each in listed), default=None)


def test_an_empty_group_of_keys_states_nothing() -> None:
    assert differences(changed("run", "attack", {}), Identity.of(MANIFEST)) == []
    (one,) = differences(changed("run", "attack", {"share": {"of": 0}}), Identity.of(MANIFEST))
    assert (one.key, one.recorded, one.wanted) == ("attack.share.of", "0", "absent")


def test_a_result_is_what_it_is() -> None:
    assert differences(Identity.of(MANIFEST), Identity.of(MANIFEST)) == []


@pytest.mark.parametrize(
    ("section", "key", "value", "meaning"),
    [
        ("run", "seed", 2, Meaning.OTHER_NUMBERS),
        ("run", "optimizer", {"lr": 0.2}, Meaning.OTHER_NUMBERS),
        ("run", "later", 1, Meaning.OTHER_NUMBERS),
        ("numerics", "core", "3", Meaning.OTHER_NUMBERS),
        ("numerics", "measure mine", "3", Meaning.OTHER_NUMBERS),
        ("arithmetic", None, "stacked", Meaning.OTHER_NUMBERS),
        ("arithmetic", None, "per client, cuda without TF32", Meaning.OTHER_NUMBERS),
        ("dtype", None, "float64", Meaning.OTHER_NUMBERS),
        ("data", "content_sha256", "other", Meaning.OTHER_NUMBERS),
        ("data", "partition_sha256", "other", Meaning.OTHER_NUMBERS),
        ("data", "given", {"generator": "other"}, Meaning.OTHER_NUMBERS),
        ("packages", "torch", "2.16.0", Meaning.APART),
        ("packages", "torch", "2.15.1", Meaning.OTHER_BITS),
        ("packages", "numpy", "2.5.0", Meaning.OTHER_BITS),
        ("packages", "pandas", "3.2.0", Meaning.OTHER_BITS),
        ("packages", "fedrepro", "0.3.0", Meaning.DESCRIPTION),
        ("hardware", "machine", "aarch64", Meaning.APART),
        ("hardware", "processor", "two", Meaning.OTHER_BITS),
        ("hardware", "vector_instructions", "AVX512", Meaning.OTHER_BITS),
        ("hardware", "system", "Darwin", Meaning.OTHER_BITS),
        ("hardware", "accelerator", "GPU two", Meaning.OTHER_BITS),
        ("hardware", "python", "3.13", Meaning.DESCRIPTION),
        ("hardware", "cores", 96, Meaning.DESCRIPTION),
    ],
)
def test_each_fact_has_its_consequence(
    section: str, key: str | None, value: Any, meaning: Meaning
) -> None:
    other = changed(section, key, value)
    assert gravest(other) == meaning
    was = MANIFEST[section] if key is None else MANIFEST[section].get(key, "absent")
    (one,) = differences(Identity.of(MANIFEST), other)
    if section != "dtype":
        assert (leaf(was), leaf(value)) == (one.recorded.strip("'"), one.wanted.strip("'"))
    (one,) = differences(other, Identity.of(MANIFEST))
    if section != "dtype":
        assert (leaf(value), leaf(was)) == (one.recorded.strip("'"), one.wanted.strip("'"))
    if section == "hardware":  # what a result says of where it is from
        said = identity.made_on(Identity.of(MANIFEST)) != identity.made_on(other)
        assert said == (meaning > Meaning.DESCRIPTION)


@pytest.mark.parametrize("section", sorted(MANIFEST.keys() - {"code"}))
def test_what_a_record_does_not_state_is_no_difference(section: str) -> None:
    without = Identity.of({key: MANIFEST[key] for key in MANIFEST.keys() - {section}})
    assert differences(without, Identity.of(MANIFEST)) == []
    if section != "numerics":  # what is made now has ids
        assert differences(Identity.of(MANIFEST), without) == []


def test_code_without_ids_is_compared_by_its_fingerprint() -> None:
    wanted = Identity.of(MANIFEST)
    without = replace(wanted, numerics={})
    assert differences(without, wanted) == []
    for code in ("other", ""):  # the last states nothing about its code at all
        (one,) = differences(replace(without, fingerprint=code), wanted)
        assert (one.meaning, one.about) == (Meaning.OTHER_NUMBERS, "code")
        assert (one.recorded, one.wanted) == (code, "fingerprint")
        assert identity.in_words([one]) == one.words == identity.WITHOUT_IDS
        assert differences(wanted, replace(without, fingerprint=code))


def test_statistics_of_held_out_rows_are_other_data() -> None:
    """A table's runs from before rows were held out of its statistics do not state the key."""
    wanted = changed("data", "missing_sha256", None)
    assert gravest(wanted) == Meaning.OTHER_NUMBERS
    assert differences(wanted, wanted) == []


@pytest.mark.parametrize(
    ("section", "key", "value", "averaged", "on_request"),
    [
        ("run", "seed", 2, True, True),
        ("hardware", "processor", "two", True, True),
        ("packages", "torch", "2.15.1", True, True),
        ("packages", "torch", "1.13.0", False, True),
        ("hardware", "machine", "aarch64", False, True),
        ("arithmetic", None, "stacked", False, False),
        ("dtype", None, "float64", False, False),
    ],
)
def test_runs_are_averaged_within_a_class(
    section: str, key: str | None, value: Any, averaged: bool, on_request: bool
) -> None:
    both = [Identity.of(MANIFEST), changed(section, key, value)]
    assert identity.may_average(both) == averaged
    assert identity.may_average(both, across_machines=True) == on_request


def test_a_run_of_unknown_arithmetic_is_averaged_with_no_other() -> None:
    unknown = Identity.of({key: MANIFEST[key] for key in MANIFEST.keys() - {"arithmetic"}})
    assert identity.may_average([unknown]) and not identity.may_average([unknown, unknown])


def test_the_identity_of_a_specification_is_that_of_its_run() -> None:
    spec = run_spec("ima+fedprox")
    one = identity_of(spec)
    assert one.configuration["composition"] == "ima+fedprox"
    assert {"core", "method ima", "method fedprox", "model logistic"} == one.numerics.keys()
    assert one.packages == identity.packages() and one.machine == identity.machine()
    assert {"torch", "numpy", "fedrepro"} <= one.packages.keys()
    assert one.arithmetic == "per client" and one.data == {} and one.fingerprint == ""
    with_data = identity_of(spec, {"mean": (1.5, 2)}, fingerprinted=True)
    assert with_data.data == {"mean": [1.5, 2]}
    assert with_data.fingerprint == fingerprint.of_code(spec)
    other = identity_of(run_spec("ima+fedprox", rounds=3))
    assert {each.key for each in differences(one, other)} == {"rounds"}


@pytest.mark.parametrize("damaged", [None, 7, "text", [], {"run": 3}, {"data": [1]}])
def test_a_damaged_record_states_nothing(damaged: Any) -> None:
    record = damaged if isinstance(damaged, dict) else {"run": damaged, "packages": damaged}
    found = Identity.of({**record, "arithmetic": None})
    assert found.configuration == {} and found.packages == {} and found.data == {}


def test_a_sentence_names_the_first_differences_and_counts_the_others() -> None:
    """Each group by itself; of code all parts that are other, none that is not."""
    then = {**MANIFEST, "run": dict(zip("abcdef", range(1, 7), strict=True))}
    then |= {"numerics": {"core": "9", "method fedavg": "2", "model x": "3"}}
    then |= {"packages": {"numpy": "1.0"}}
    now = {**MANIFEST, "run": dict(zip("abcdef", range(10, 70, 10), strict=True))}
    listed = differences(Identity.of(then), Identity.of(now))
    about = [each.about for each in listed]
    assert about == ["configuration"] * 6 + ["code"] * 2 + ["packages"]
    configuration, code, packages = identity.in_words(listed).split("made ")[1:]
    assert all(f"{key} was" in configuration for key in "abc") and "3 more" in configuration
    assert not any(f"{key} was" in configuration for key in "def")
    assert "core, model x" in code and "fedavg" not in code
    assert "1.0" in packages and "2.4.6" in packages and "more" not in packages
    (one,) = differences(Identity.of(now), replace(Identity.of(now), numerics={"core": "1"}))
    assert (one.key, one.recorded, one.wanted) == ("method fedavg", "2", "absent")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a" * 40, f"{'a' * 12}…"),
        ("b" * 64, f"{'b' * 12}…"),
        ("a" * 41, "a" * 41),
        ("c d" * 20, "c d" * 20),
        ("c d" * 21, f"{'c d' * 19}c …"),
        ("a\x1b[2J\tb\n", "a?[2J\tb?"),
        ([1, None], "[1, null]"),
        (True, "true"),
    ],
)
def test_a_value_is_shown_short_and_cannot_move_the_cursor(value: object, text: str) -> None:
    assert identity.shown(value) == text


def test_facts_of_a_machine_are_those_of_this_one() -> None:
    facts = identity.machine()
    python = ".".join(map(str, sys.version_info[:3]))
    assert facts["python"].startswith(python) and facts["machine"] == os.uname().machine
    assert facts["system"] == os.uname().sysname
    assert facts["vector_instructions"] == torch.backends.cpu.get_cpu_capability()
    names = re.findall(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    assert not names or facts["processor"] == names[0].strip()
