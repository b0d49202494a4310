"""The sources of papers and methods: reports/papers/references.yaml."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from pydantic import Field, model_validator

from fedrepro.run.results import REFERENCES
from fedrepro.support.packaged import own_or_packaged
from fedrepro.support.typed_yaml import Typed, read_yaml, validate


class Reference(Typed):
    """One work of the bibliography."""

    author: str
    title: str
    year: str = Field(pattern=r"^\d{4}$")
    journal: str | None = None
    booktitle: str | None = None
    pages: str | None = None
    note: str | None = None
    doi: str | None = Field(default=None, pattern=r"^10\.\d+/\S+$")
    arxiv: str | None = Field(default=None, pattern=r"^\d{4}\.\d{4,5}$")
    url: str | None = Field(default=None, pattern=r"^https://\S+$")

    @property
    def links(self) -> list[tuple[str, str]]:
        """(name, address) of the work's web pages."""
        links = []
        if self.doi:
            links.append((f"doi:{self.doi}", f"https://doi.org/{quote(self.doi, safe='/')}"))
        if self.arxiv:
            links.append((f"arXiv:{self.arxiv}", f"https://arxiv.org/abs/{self.arxiv}"))
        if self.url:
            links.append(("paper", self.url))
        return links

    @property
    def fields(self) -> dict[str, str]:
        """The fields that are given, in the order of this class."""
        return {name: str(value) for name, value in self if value is not None}


class References(Typed):
    """The file: works by key, and which keys belong to systems' papers and to methods."""

    papers: Mapping[str, str] = {}
    methods: Mapping[str, str] = {}
    entries: Mapping[str, Reference] = {}

    @model_validator(mode="after")
    def _are_there(self) -> "References":
        missing = sorted({*self.papers.values(), *self.methods.values()} - {*self.entries})
        if missing:
            raise ValueError(f"entries: {', '.join(missing)}: missing")
        return self

    def of_paper(self, system: str) -> tuple[str, Reference] | None:
        """Key and work of a system's paper, or None."""
        return self._entry(self.papers.get(system))

    def of_method(self, name: str) -> tuple[str, Reference] | None:
        """Key and work of a method, or None."""
        return self._entry(self.methods.get(name))

    def _entry(self, key: str | None) -> tuple[str, Reference] | None:
        return (key, self.entries[key]) if key else None


def load_references(root: Path) -> References:
    """The references of a workbench; without a file of its own, those of the package.

    Raises:
        UserError: if the file is invalid.
    """
    file = own_or_packaged(root, REFERENCES)
    return validate(References, read_yaml(file, REFERENCES), str(REFERENCES))
