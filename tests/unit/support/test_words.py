"""Small functions that messages, pages and names go through: tables of all their branches."""

import socket
from pathlib import Path

import numpy as np
import pytest

from fedrepro.support import errors, printing
from fedrepro.support.errors import Interrupted, UserError
from fedrepro.support.names import Composition, SettingName
from fedrepro.support.packaged import PACKAGE
from fedrepro.support.scoped_cache import ScopedCache, read_once


@pytest.mark.parametrize("clients", [1, 2])
def test_no_share_is_named_where_half_is_none(clients: int) -> None:
    assert "at least" not in str(errors.nobody("here", "share", 0.2, clients))


@pytest.mark.parametrize("clients", [3, 7, 10, 99, 100, 333, 10_000])
def test_the_least_share_that_is_named_is_one_client(clients: int) -> None:
    """And a ten-thousandth less is none."""
    said = str(errors.nobody("here", "share", 0.5 / clients, clients))
    least = float(said.partition("at least ")[2].partition(":")[0])
    assert int(least * clients + 1e-9) == 1
    assert int((least - 1e-4) * clients + 1e-9) == 0 and f"of {clients} clients" in said


def test_a_message_is_one_line_of_at_most_900_characters() -> None:
    assert str(UserError("  a\n\n b \r\n\tc ")) == "a b c"
    assert str(UserError("a\x1b[2Jb")) == "a\\x1b[2Jb"
    for length in (899, 900, 901, 5000):
        said = str(UserError("x" * length))
        assert len(said) == min(length, 900) and said.endswith("...") == (length > 900)


def test_a_value_in_a_message_has_at_most_120_characters() -> None:
    for length in (118, 119, 500):  # and two quotes
        said = errors.brief("x" * length)
        assert len(said) == min(length + 2, 120) and said.endswith("...") == (length > 118)
    assert len(errors.brief(10**5000)) <= 120 and "int" in errors.brief(10**5000)
    assert errors.brief(1.5) == "1.5"
    for kind, value in ((np.float64, 1.5), (np.int8, 3), (np.bool, True), (np.str_, "a ")):
        assert errors.brief(kind(value)) == errors.brief(np.array(value)) == repr(value)


def test_of_many_names_twelve_are_listed_and_the_rest_counted() -> None:
    names = [f"n{number}" for number in range(20)]
    for count in (0, 1, 11, 12):
        assert errors.listed(names[:count]) == ", ".join(names[:count])
    assert errors.listed(names[:13]) == ", ".join(names[:12]) + " and 1 more"
    assert errors.listed(names) == ", ".join(names[:12]) + " and 8 more"


def test_the_nearest_names_are_said_if_they_resemble_it() -> None:
    known = ["fedavg", "fedprox", "scaffold", "feddyn"]
    assert errors.nearest("fedavgg", known).endswith(" 'fedavg'?")
    assert errors.nearest("x" * 120, ["x" * 119]) != ""
    assert errors.nearest("zzzz", known) == errors.nearest("x" * 121, ["x" * 120]) == ""
    assert errors.nearest("fedavg", ["fedavg"]) == "", "it is what was given"
    assert errors.nearest("fedavg", ["fedavg", "fedavgm"]).endswith(" 'fedavgm'?")
    two = errors.nearest("feddy", known, most=2)
    assert " 'feddyn' or 'fed" in two and two.count("'") == 4
    said = str(errors.bad_value("file", "key", "scafold", "a method", known))
    assert said == "file: key: 'scafold': expected a method; did you mean 'scaffold'?"


def test_what_ends_a_command_has_its_status(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, errors.exit_on_user_error():
        raise UserError("broken")
    assert ended.value.code == 2
    captured = capsys.readouterr()
    assert captured.err == "fedrepro: broken\n" and captured.out == ""
    with errors.exit_on_user_error():
        pass
    assert [Interrupted("x", number).status for number in (2, 15)] == [130, 143]
    assert isinstance(Interrupted("x", 2), KeyboardInterrupt)


def test_of_many_files_the_broken_ones_are_left_out_and_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def load(path: Path) -> str:
        if path.name == "bad":
            raise UserError(f"{path}: why")
        return path.name.upper()

    found = errors.load_valid(load, {"a": Path("x"), "b": Path("bad"), "c": Path("y")})
    assert found == {"a": "X", "c": "Y"}
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fedrepro: ") and line.endswith(": bad: why")


def test_an_error_is_told_even_if_its_text_fails() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise KeyError("x")

    assert errors.text_of(ValueError("why")) == "ValueError: why"
    assert errors.text_of(Mute()).startswith("Mute ") and "KeyError" in errors.text_of(Mute())
    for error, why in ((OSError(28, "full"), "full"), (OSError("odd"), "odd")):
        unwritable = errors.cannot_write("f", error)
        assert (unwritable.code, unwritable.file) == ("unwritable", "f")
        assert str(unwritable).startswith("f: ") and str(unwritable).endswith(f": {why}")


# --- names ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("fidelities", [("", ""), ("@released", ""), ("@paper", "@released")])
def test_a_composition_is_written_as_it_was_read(fidelities: tuple[str, str]) -> None:
    names = ("ima", "fedprox", "fedadam")
    ends = (*fidelities, "")
    text = "+".join(name + end for name, end in zip(names, ends, strict=True))
    read = Composition.parse(text)
    assert str(read) == text and read.names == names
    assert [part.released for part in read.parts] == [end == "@released" for end in ends]
    assert str(read.inner) == text.partition("+")[2]
    assert read.inner.inner.inner == Composition(()) and str(Composition(())) == ""
    assert str(read.parts[0].named("x")) == "x" + ends[0]
    assert Composition.of(read.parts) == read == Composition.parse(str(read))


@pytest.mark.parametrize(
    "text", ["", "+a", "a+", "a++b", "a@", "a@new", "@released", "a@released@"]
)
def test_what_is_no_composition_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="expected"):
        Composition.parse(text)


@pytest.mark.parametrize(
    ("text", "released", "plain", "validation"),
    [
        ("ima/digits", False, "ima/digits", ""),
        ("ima/digits@released", True, "ima/digits", ""),
        ("ima/digits@validation0.2", False, "ima/digits@validation0.2", "0.2"),
        ("ima/d@released@validation0.2_lr1", False, "ima/d@released@validation0.2_lr1", "0.2_lr1"),
    ],
)
def test_a_setting_s_name_has_a_system_a_reading_and_a_share(
    text: str, released: bool, plain: str, validation: str
) -> None:
    read = SettingName.parse(text)
    assert str(read) == text and (read.system, read.local) == tuple(text.split("/"))
    assert (read.is_released, str(read.plain), read.validation) == (released, plain, validation)
    assert SettingName.parse("alone") == SettingName("alone", "")


# --- text for terminals and pages ----------------------------------------------------------------
def test_control_characters_are_written_out_and_nothing_else_is() -> None:
    for code in range(0x250):
        shown = printing.printable(f"a{chr(code)}b")
        control = (code < 0x20 or 0x7F <= code < 0xA0) and chr(code) not in "\n\t"
        assert shown == (f"a\\x{code:02x}b" if control else f"a{chr(code)}b")


def test_counts_and_capitals() -> None:
    said = [printing.counted(number, "seed") for number in (0, 1, 2, 11)]
    assert said == ["0 seeds", "1 seed", "2 seeds", "11 seeds"]
    for before, after in {"a NaN": "A NaN", "AUROC": "AUROC", "": "", "é": "É"}.items():
        assert printing.sentence_case(before) == after


def test_a_page_has_no_path_and_no_machine(tmp_path: Path) -> None:
    """But what is relative, an address, and what is below the workbench."""
    host = socket.gethostname()
    for text, shown in {
        f"{tmp_path}/results/x.json: damaged": "./results/x.json: damaged",
        "can't read /home/me/data/a.csv: gone": "can't read …: gone",
        "'/etc/passwd', (/tmp/x) and /y;": "'…', (…) and …;",
        "results/runs/a, ./b and a/b/c": "results/runs/a, ./b and a/b/c",
        "see https://a.org/b/c </p>": "see https://a.org/b/c </p>",
        f"process 12 on node7.x: busy on {host}": "process 12 on a machine: busy on a machine",
        f"x{host}": f"x{host}",
        "\x1b": "\\x1b",
        f'File "{PACKAGE}/engine/net.py"': f'File "./{PACKAGE.name}/engine/net.py"',
    }.items():
        assert printing.redact(text, tmp_path) == shown


def test_values_are_made_once_within_the_outermost_block() -> None:
    cache, other, made = ScopedCache[str, int](), ScopedCache[str, int](), []

    def value(key: str) -> int:
        def make() -> int:
            made.append(key)
            return len(made)

        return cache.of(key, make)

    assert [value("a"), value("a")] == [1, 2]  # outside of a block
    with read_once():
        assert value("a") == value("a") == 3
        assert other.of("a", lambda: 0) == 0  # it has values of its own
        with read_once():
            assert (value("a"), value("b")) == (3, 4)
        assert (value("a"), value("b")) == (3, 4)  # an inner block ends nothing
    with read_once():
        assert value("a") == 5
    assert made == ["a", "a", "a", "b", "a"]
