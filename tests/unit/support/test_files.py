"""Files that stay, or are one line."""

from pathlib import Path

import pytest

from fedrepro.support.errors import UserError
from fedrepro.support.files import whole_folder, write_atomically


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(UserError, match="could not be written"),
        write_atomically(tmp_path / "file" / "x"),
    ):
        pass


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_folder_that_cannot_be_replaced_stays(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, rename = tmp_path / "data", Path.rename
    folder.mkdir()
    (folder / "old").touch()

    def failing(path: Path, target: Path) -> Path:
        if path.name.endswith(".tmp"):
            raise error
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises((UserError, KeyboardInterrupt)), whole_folder(folder) as made:
        (made / "new").touch()
    assert [path.name for path in folder.iterdir()] == ["old"]
    assert list(tmp_path.iterdir()) == [folder]
