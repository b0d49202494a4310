"""A paper's files made wrong: `fedrepro check-paper` names faults in lines, with no traceback."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedrepro.cli.main import main
from support.another_paper import FILES, settle
from support.malformed import Mutation, fuzzed, mutated, mutations


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return settle(tmp_path_factory.mktemp("paper"))


@fuzzed(12)
@given(file=st.sampled_from([*FILES.values()]), changes=mutations())
@example(file=FILES["cells"], changes=[("insert", 0.5, 0.0, b"\0")])
def test_a_wrong_file_is_named_in_lines(root: Path, file: str, changes: list[Mutation]) -> None:
    path = root / file
    content = path.read_bytes()
    try:
        path.write_bytes(mutated(content, changes))
        assert main(["--root", str(root), "check-paper", "mcmahan"]) in (0, 1)
    finally:
        path.write_bytes(content)
