"""Check single arguments of a command line, and find the run that they name."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedrepro.config.config_file import Overrides
from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey
from fedrepro.config.values import Scalar
from fedrepro.config.workbench import Workbench
from fedrepro.support.errors import COMMAND_LINE, bad_argument
from fedrepro.support.files import atomic_folder
from fedrepro.support.locks import exclusive_lock
from fedrepro.support.typed_yaml import read_value


def require_at_least(key: str, value: int, least: int) -> None:
    """Raise UserError if an argument is less than ``least``."""
    if value < least:
        raise bad_argument(key, value, f"a whole number of at least {least}")


def refuse_existing(key: str, folder: Path) -> None:
    """Raise UserError if there is something where a command makes a folder."""
    if folder.exists():
        raise bad_argument(key, str(folder), "a folder that does not exist yet")


@contextmanager
def new_folder(key: str, folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes the one that a command makes, whole or not at all.

    Raises:
        UserError: if it cannot be written, or if something is there: work may have taken long.
    """
    with exclusive_lock(folder), atomic_folder(folder) as made:
        yield made
        refuse_existing(key, folder)


def require_seed(key: str, seed: int) -> None:
    """Raise UserError unless ``seed`` is in [0, 2**32)."""
    if not 0 <= seed < 2**32:
        raise bad_argument(key, seed, "a whole number from 0 to 4294967295")


def requested(
    arguments: argparse.Namespace, overrides: Overrides | None = None
) -> tuple[Workbench, RunKey]:
    """The run that a command's arguments SETTING, METHOD and --seed name.

    Raises:
        UserError: for an invalid setting, seed, hyperparameter or key.
    """
    require_seed("--seed", arguments.seed)
    workbench = load(overrides=overrides)
    setting, method = workbench.setting(arguments.setting), arguments.method
    if not (values := values_of(arguments.set)):
        return workbench, RunKey(setting.name, method, arguments.seed)
    workbench, changed, method = workbench.with_variant(setting, method, values)
    return workbench, RunKey(changed, method, arguments.seed)


def values_of(texts: list[str]) -> dict[str, Scalar]:
    """The names and values that ``--set`` gives."""
    values: dict[str, Scalar] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals or key in values:
            raise bad_argument("--set", text, "NAME=VALUE, each name once")
        values[key] = read_value(value, COMMAND_LINE, f"--set {key}")
    return values
