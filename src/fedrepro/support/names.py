"""Names of methods and settings, parsed: how they are written is known here only."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from fedrepro.support.errors import bad_value

RELEASED = "@released"  # ends the name of what follows the released code
FIDELITIES = {"", "@paper", RELEASED}


@dataclass(frozen=True)
class Part:
    """One name in a composition, such as ``fedprox@released``.

    Attributes:
        fidelity: "", "@paper" (which means the same) or "@released".
    """

    name: str
    fidelity: str = ""

    @property
    def released(self) -> bool:
        return self.fidelity == RELEASED

    def named(self, name: str) -> Self:
        """The part of another name, as faithful."""
        return replace(self, name=name)

    def __str__(self) -> str:
        return self.name + self.fidelity


@dataclass(frozen=True)
class Composition:
    """A method's name: its parts from the outermost wrapper to the server optimizer."""

    parts: tuple[Part, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """The composition that is written so.

        Raises:
            UserError: for an empty part or a fidelity other than paper or released.

        Examples:
            >>> from fedrepro.support.names import Composition
            >>> method = Composition.parse("ima+fedprox@released")
            >>> method.names, str(method.inner)
            (('ima', 'fedprox'), 'fedprox@released')
        """
        parts = []
        for written in text.split("+"):
            name, at, fidelity = written.partition("@")
            if not name:
                wanted = "names joined by '+', such as ima+fedprox"
                raise bad_value("method", "name", text, wanted)
            if at + fidelity not in FIDELITIES:
                wanted = "'paper' or 'released' after '@'"
                raise bad_value("method", text, fidelity, wanted, ("paper", "released"))
            parts.append(Part(name, at + fidelity))
        return cls(tuple(parts))

    @classmethod
    def of(cls, parts: Iterable[Part]) -> Self:
        return cls(tuple(parts))

    @property
    def names(self) -> tuple[str, ...]:
        """The parts' names, without their fidelity."""
        return tuple(part.name for part in self.parts)

    @property
    def inner(self) -> Self:
        """The composition within the outermost part; empty if there is no other part."""
        return self.of(self.parts[1:])

    def __str__(self) -> str:
        return "+".join(map(str, self.parts))


@dataclass(frozen=True)
class SettingName:
    """The full name of a setting, ``<system>/<setting>``.

    Attributes:
        local: its name in the system's file, with its reading: ``@released``,
            ``@validation<share>`` or both.
    """

    system: str
    local: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """The setting that is written so.

        Examples:
            >>> from fedrepro.support.names import SettingName
            >>> SettingName.parse("ima/digits@released").plain
            SettingName(system='ima', local='digits')
        """
        system, _, local = text.partition("/")
        return cls(system, local)

    @property
    def is_released(self) -> bool:
        return self.local.endswith(RELEASED)

    @property
    def plain(self) -> Self:
        """The setting as the paper's text says."""
        return replace(self, local=self.local.removesuffix(RELEASED))

    @property
    def validation(self) -> str:
        """The part of its name after ``@validation``, or ""."""
        return self.local.partition("@validation")[2]

    def __str__(self) -> str:
        return f"{self.system}/{self.local}"
