"""A result's identity: everything that its numbers follow from, and how two identities differ.

This is the only place that decides whether a result is the one that would be made now. Runs,
checkpoints, parent runs, inputs, landed and reference results all have a record with the keys of a
manifest; :meth:`Identity.of` reads one, and :func:`differences` compares it with the identity that
is wanted. What a record does not state makes no difference: older records state less.
"""

import json
import platform
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedrepro.config.run_spec import RunSpec
from fedrepro.provenance import arithmetic, fingerprint, numerics
from fedrepro.support.grouping import grouped

PACKAGES = ("fedrepro", "torch", "numpy", "pandas", "pyarrow", "safetensors")
MOST = 3  # differences in a sentence
LONGEST = 60  # characters of a value
HASH = 12  # of a hash
ABSENT = object()  # stands for the value of a missing key
WITHOUT_IDS = "made before code had numerics ids, and not played again by today's"

# What a fact of a machine says of a result's bits. Facts that are not listed say nothing: results
# are the same for any version of Python (`make pythons`) and any number of cores.
OF_A_MACHINE = ("machine", "system", "processor", "vector_instructions", "accelerator")
# Keys of data without which a record's numbers are others: before there were these keys, statistics
# of a table were those of all rows, whoever held them out, and models and losses of a user's own
# were given something else (fedrepro.run.input_artifacts).
WITHOUT_IS_OTHER = frozenset({"missing_sha256", "own_inputs", "own_mean"})
UNKNOWN = "unknown-"  # the id of code that cannot be compared begins so
OURS = "fedrepro"  # code counts by its numerics ids, whatever version it came with


class Meaning(IntEnum):
    """The consequence of a difference, from the least to the gravest.

    Attributes:
        DESCRIPTION: none for the numbers.
        OTHER_BITS: the last digits may differ. The result is kept, averaged with others, and named.
        APART: more digits may differ (another architecture, another minor version of PyTorch). The
            result is kept, and averaged with others only on request.
        OTHER_NUMBERS: it is another result. It is stale, and never averaged.
    """

    DESCRIPTION = 0
    OTHER_BITS = 1
    APART = 2
    OTHER_NUMBERS = 3


@dataclass(frozen=True)
class Difference:
    """One respect in which a result differs from the wanted one.

    Attributes:
        about: "configuration", "code", "arithmetic", "data", "packages" or "machine".
        key: such as "optimizer.lr", "method fedprox" or "torch".
        recorded, wanted: the two values as short text; or "" where ``words`` say all.
    """

    meaning: Meaning
    about: str
    key: str
    recorded: str = ""
    wanted: str = ""
    words: str = ""

    def __str__(self) -> str:
        return self.words or f"{self.key} was {self.recorded}, is {self.wanted}"


@dataclass(frozen=True)
class Identity:
    """What a result's numbers follow from, as far as it is known.

    Attributes:
        configuration: the description of the run (:meth:`RunSpec.description`), as JSON returns it.
        numerics: the id of each part of its code; empty for records older than these ids.
        fingerprint: of its parsed code, which decides where there are no ids; or "".
        arithmetic: the class of arithmetic, :data:`arithmetic.UNKNOWN` if it is not stated.
        data: what identifies samples, partition, initial weights and inputs.
        packages: package -> version.
        machine: facts about the computer.
    """

    configuration: Mapping[str, Any] = field(default_factory=dict)
    numerics: Mapping[str, str] = field(default_factory=dict)
    fingerprint: str = ""
    arithmetic: str = arithmetic.UNKNOWN
    data: Mapping[str, Any] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Identity":
        """The identity that a record with a manifest's keys states; damaged keys count as missing.

        A default dtype other than PyTorch's counts as part of the arithmetic.
        """
        record = _as_json(record)
        words, dtype = arithmetic.of_manifest(record), record.get("dtype", "float32")
        return cls(
            configuration=_mapping(record, "run"),
            numerics=numerics.recorded(_mapping(record, "numerics")),
            fingerprint=str(record.get("code") or ""),
            arithmetic=words if dtype == "float32" else f"{words}, {dtype}",
            data=_mapping(record, "data"),
            packages=_mapping(record, "packages"),
            machine=_mapping(record, "hardware"),
        )


def identity_of(
    spec: RunSpec, data: Mapping[str, Any] = MappingProxyType({}), *, fingerprinted: bool = False
) -> Identity:
    """The identity that a run of this specification would have if it were made now, here.

    Args:
        data: what identifies its data, as far as that is known (:mod:`fedrepro.provenance.inputs`).
        fingerprinted: whether to add the fingerprint of its code, for records without ids.
    """
    return Identity(
        configuration=_as_json(spec.description()),
        numerics=numerics.of_run(spec),
        fingerprint=fingerprint.of_code(spec) if fingerprinted else "",
        arithmetic=arithmetic.of_spec(spec),
        data=_as_json(data),
        packages=packages(),
        machine=machine(),
    )


@cache
def packages() -> dict[str, str]:
    """The versions of the packages that a result is computed and written with."""
    return {name: version(name) for name in PACKAGES}


def machine() -> dict[str, Any]:
    """Facts about this computer that can change the bits of a result.

    The kind of vector instructions is what PyTorch uses: it is missing while that is not imported.
    """
    facts: dict[str, Any] = {
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "processor": processor(),
    }
    if "torch" in sys.modules:
        facts["vector_instructions"] = sys.modules["torch"].backends.cpu.get_cpu_capability()
    return facts


@cache
def processor() -> str:
    """The processor's name."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.processor()


def _as_json(content: Mapping[str, Any]) -> dict[str, Any]:
    """Content as a file returns it."""
    returned: dict[str, Any] = json.loads(json.dumps(dict(content), default=dict))
    return returned


def _mapping(record: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def differences(recorded: Identity, wanted: Identity) -> list[Difference]:
    """Lists how a result's identity differs from the wanted one; [] if it is the wanted result."""
    return [
        *_configuration(recorded, wanted),
        *_code(recorded, wanted),
        *_arithmetic(recorded, wanted),
        *_data(recorded, wanted),
        *_facts("packages", recorded.packages, wanted.packages),
        *_facts("machine", recorded.machine, wanted.machine),
    ]


def at_least(meaning: Meaning, listed: Iterable[Difference]) -> list[Difference]:
    """The differences that are at least as grave as ``meaning``."""
    return [difference for difference in listed if difference.meaning >= meaning]


def other_numbers(listed: Iterable[Difference]) -> list[Difference]:
    """The differences that make it another result."""
    return at_least(Meaning.OTHER_NUMBERS, listed)


def in_words(listed: Iterable[Difference]) -> str:
    """Differences as one sentence without a full stop; "" if there are none."""
    groups = grouped(listed, lambda difference: difference.about)
    return "; ".join(_sentence(about, group) for about, group in groups.items())


def _sentence(about: str, group: list[Difference]) -> str:
    said = list(map(str, group))
    if about == "code":
        if said[0] == WITHOUT_IDS or group[0].words:
            return said[0]
        return f"made by other code: {', '.join(difference.key for difference in group)}"
    listed = "; ".join((*said[:MOST], *([f"and {len(said) - MOST} more"] if said[MOST:] else [])))
    how = {
        "configuration": "made with another configuration",
        "arithmetic": "made with other arithmetic",
        "data": "made from other data",
        "packages": "made with other packages",
        "machine": "made on another machine",
    }
    return f"{how[about]}: {listed}"


def _configuration(recorded: Identity, wanted: Identity) -> Iterator[Difference]:
    if recorded.configuration and wanted.configuration:
        yield from _differing(
            Meaning.OTHER_NUMBERS, "configuration", recorded.configuration, wanted.configuration
        )


def _code(recorded: Identity, wanted: Identity) -> Iterator[Difference]:
    if recorded.numerics and wanted.numerics:
        for part in numerics.differing(recorded.numerics, wanted.numerics):
            ids = recorded.numerics.get(part, "absent"), wanted.numerics.get(part, "absent")
            yield Difference(Meaning.OTHER_NUMBERS, "code", part, *ids)
    elif recorded.fingerprint != wanted.fingerprint:
        words = WITHOUT_IDS if wanted.numerics else "made by other code"
        both = recorded.fingerprint[:HASH], wanted.fingerprint[:HASH]
        yield Difference(Meaning.OTHER_NUMBERS, "code", "fingerprint", *both, words)


def _arithmetic(recorded: Identity, wanted: Identity) -> Iterator[Difference]:
    both = recorded.arithmetic, wanted.arithmetic
    if both[0] != both[1] and arithmetic.UNKNOWN not in both:
        yield Difference(Meaning.OTHER_NUMBERS, "arithmetic", "arithmetic", *map(repr, both))


def _data(recorded: Identity, wanted: Identity) -> Iterator[Difference]:
    """Of data, each record states the keys of its time."""
    stated = recorded.data.keys() & wanted.data.keys() | WITHOUT_IS_OTHER & wanted.data.keys()
    if not recorded.data:
        return
    then, now = (
        {key: each.data[key] for key in sorted(stated & each.data.keys())}
        for each in (recorded, wanted)
    )
    yield from _differing(Meaning.OTHER_NUMBERS, "data", then, now)


def _facts(about: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Difference]:
    for key in sorted(then.keys() & now.keys()):
        if then[key] != now[key]:
            meaning = _meaning_of(key, then[key], now[key])
            yield Difference(meaning, about, key, shown(then[key]), shown(now[key]))


def _meaning_of(key: str, then: Any, now: Any) -> Meaning:
    """The consequence of another version of a package, or of another fact of a machine."""
    if key == "machine" or (key == "torch" and minor(then) != minor(now)):
        return Meaning.APART
    changes_bits = key != OURS and key in (*PACKAGES, *OF_A_MACHINE)
    return Meaning.OTHER_BITS if changes_bits else Meaning.DESCRIPTION


def minor(version: str) -> str:
    """The first two numbers of a version."""
    return ".".join(str(version).split(".")[:2])


def class_of(identity: Identity, *, across_machines: bool = False) -> str:
    """The class of results that are averaged with each other, in words.

    Args:
        across_machines: whether architectures and minor versions of PyTorch are averaged over.
    """
    facts = [identity.arithmetic]
    if not across_machines and "torch" in identity.packages:
        facts.append(f"PyTorch {minor(identity.packages['torch'])}")
    if not across_machines and "machine" in identity.machine:
        facts.append(str(identity.machine["machine"]))
    return ", ".join(facts)


def may_average(identities: Collection[Identity], *, across_machines: bool = False) -> bool:
    """True if numbers with these identities may be averaged: one class, which is known."""
    classes = {class_of(identity, across_machines=across_machines) for identity in identities}
    known = all(identity.arithmetic != arithmetic.UNKNOWN for identity in identities)
    return len(identities) < 2 or (len(classes) == 1 and known)


def made_on(identity: Identity) -> str:
    """The packages and the machine that a result is from, as far as they can change its bits."""
    packages = [f"{name} {each}" for name, each in sorted(identity.packages.items())]
    facts = (identity.machine.get(key) for key in OF_A_MACHINE)
    return ", ".join([*packages, *(str(fact) for fact in facts if fact)])


def _differing(
    meaning: Meaning, about: str, then: Mapping[str, Any], now: Mapping[str, Any]
) -> Iterator[Difference]:
    for key, *values in changed_values(dict(flatten(then)), dict(flatten(now))):
        yield Difference(meaning, about, key, *values)


def changed_values(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[tuple[str, str, str]]:
    """Each key with another value, the old value and the new one, as short text."""
    for key in dict.fromkeys((*old, *new)):
        values = old.get(key, ABSENT), new.get(key, ABSENT)
        if values[0] != values[1]:
            yield shown(str(key)), shown(values[0]), shown(values[1])


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested keys as dotted ones."""
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{name}.")
        elif not isinstance(value, Mapping):
            yield name, value


def shown(value: object) -> str:
    """A value as short JSON with printable characters only."""
    if value is ABSENT:
        return "absent"
    if isinstance(value, str) and len(value) in (40, 64) and value.isalnum():  # git hash, SHA-256
        return f"{printable(value[:HASH])}…"
    text = value if isinstance(value, str) else json.dumps(value)
    text = printable(text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def printable(text: str) -> str:
    """Text without characters that move a terminal's cursor."""
    return "".join(letter if letter.isprintable() or letter == "\t" else "?" for letter in text)
