"""Files that stay, or are one line."""

from pathlib import Path

import pytest

from fedrepro.support.errors import UserError
from fedrepro.support.files import write_atomically


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(UserError, match="could not be written"),
        write_atomically(tmp_path / "file" / "x"),
    ):
        pass
