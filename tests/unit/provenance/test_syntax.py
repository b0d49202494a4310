"""What was read of code is remembered by its bytes, and by nothing else."""

from pathlib import Path

import pytest

from fedrepro.provenance import syntax
from fedrepro.provenance.syntax import REMEMBERED, Syntax, remember, syntax_of
from fedrepro.support.plugins import content_of


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory, and a process that has not read anything."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(syntax, "_new", set())
    monkeypatch.setattr(syntax, "_used", set())
    forget()
    return tmp_path


def forget() -> None:
    """What a new process knows."""
    syntax_of.cache_clear()
    content_of.cache_clear()
    syntax._remembered.cache_clear()
    syntax._new.clear()
    syntax._used.clear()


def read(code: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Syntax, bool]:
    """What counts of some code, as a new process finds it; and whether that parsed anything."""
    forget()
    parsed: list[bytes] = []
    parse = syntax.ast.parse

    def seen(code: bytes, filename: str) -> object:
        parsed.append(code)
        return parse(code, filename=filename)

    Path("code.py").write_text(code)
    with monkeypatch.context() as patch:
        patch.setattr(syntax.ast, "parse", seen)
        found = syntax_of(Path("code.py"))
        remember()
    return found, bool(parsed)


ONE, OTHER = "from .a import b\nx = 1\n", "import a\nx = 2\n"


def test_code_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first, parsed = read(ONE, monkeypatch)
    assert parsed and first.names == ((1, "a"), (1, "a.b"))
    assert read(ONE, monkeypatch) == (first, False)
    other, parsed = read(OTHER, monkeypatch)
    assert parsed and other.names == ((0, "a"),) and other.digest != first.digest
    assert read(OTHER, monkeypatch) == (other, False)
    assert read(ONE, monkeypatch) == (first, True)  # it was no more


def test_all_that_a_process_used_is_remembered_and_not_only_what_was_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read(ONE, monkeypatch)
    forget()
    for name, code in (("one.py", ONE), ("other.py", OTHER)):
        Path(name).write_text(code)
        syntax_of(Path(name))
    remember()
    for code in (OTHER, ONE):
        Path("code.py").write_text(code)
        forget()
        syntax_of(Path("code.py"))
        assert not syntax._new


def digest_of(code: str) -> str:
    return syntax.read_syntax(code.encode(), Path("code.py")).digest


def test_what_behaves_differently_has_another_digest() -> None:
    values = ("0", "1", "None", "False", "0.0", "-0.0", "''", "b''", "[]", "()", "{}", "...", "f''")
    statements = [f"x = {value}" for value in values]
    statements += ["x: int = 0", "x += 0", "pass", "raise A", "raise B", "raise", "return_ = x"]
    statements += ["from . import x", "from .. import x", "from .x import x", "import x"]
    assert len({*map(digest_of, statements)}) == len(statements)
    same = {"raise A('x')": "raise A", "raise A from e": "raise A", "x = u'a'": "x = 'a'"}
    same |= {"def f():\n 'doc'\n return 1": "def f():\n return 1", "x = f'a'": "x = f'' f'a'"}
    assert all(digest_of(one) == digest_of(other) for one, other in same.items())


@pytest.mark.parametrize("text", ["", "{}", "0\n{}\n", "a\nb\nc", "\xff"])
def test_what_is_damaged_is_read_again(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read(ONE, monkeypatch)[0]
    REMEMBERED.write_text(text, encoding="latin-1")
    assert read(ONE, monkeypatch) == (whole, True)
    wrong = REMEMBERED.read_text(encoding="utf-8").replace(whole.digest, "0" * 64)
    REMEMBERED.write_text(wrong, encoding="utf-8")
    assert read(ONE, monkeypatch) == (whole, True)


def test_so_is_what_another_python_read(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read(ONE, monkeypatch)[0]
    monkeypatch.setattr(syntax, "_reader", lambda: "another")
    assert read(ONE, monkeypatch) == (whole, True)


# What Pythons parse differently: nested format specifications (3.12), type parameters' empty lists.
VARIED = """
import a.b as c
@c
class One(Two, key=3):
    x: int = 1_000
    def f(self, a, /, b=1.5, *c, d: "str" = "ü", **e) -> None:
        return f"{a:{'+.2f' if b < 1e5 else '+.3g'}}" f"{a!r:>{b}.{d}} {{}}" "tail" f"{b=}"
async def g(x):
    async with x as y, z:
        return [i async for i in y if (j := i) is not None], lambda *a, k=None: {**a, k: ...}
try:
    match x:
        case {"a": [1, *_], **rest} | One(y=2) as z if z: del z
except* (A, B) as e:
    raise C("text") from e
finally:
    x[1:2, ...] @= -1j ** b"bytes"
"""


def test_every_python_reads_the_same() -> None:
    """Else the ids in provenance/numerics.json and in manifests mean nothing to another Python."""
    digest = syntax.read_syntax(VARIED.encode(), Path("code.py")).digest
    assert digest == "f90ae9f269b6a9057c02859949a7feff6dc8eeee4b04bcac94ab93c239a5ea17"


def test_where_nothing_can_be_kept_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    REMEMBERED.parent.write_text("a file where the folder should be")
    whole = read(ONE, monkeypatch)[0]
    assert read(ONE, monkeypatch) == (whole, True)


def test_it_is_saved_where_the_workbench_is(tmp_path: Path) -> None:
    """Snakemake calls this in the end, when it is back where it was called."""
    code = tmp_path / "a.py"
    code.write_text(f"where = {str(tmp_path)!r}\n", encoding="utf-8")
    syntax_of(code)
    remember(tmp_path / "workbench")
    assert (tmp_path / "workbench" / REMEMBERED).exists()
