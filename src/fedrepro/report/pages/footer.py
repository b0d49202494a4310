"""The footer of every page: version, commit, licence, repository, how to cite."""

from functools import cache
from importlib.metadata import PackageNotFoundError, metadata
from types import SimpleNamespace

import fedrepro
from fedrepro.support import checkout
from fedrepro.support.packaged import ORIGIN, PACKAGE
from fedrepro.support.typed_yaml import read_yaml

CITATION = "CITATION.cff"
LABELS = ("repository", "source", "source code")  # of a package's URLs


@cache
def software() -> SimpleNamespace:
    """The version of this package, the ``commit`` of its checkout (or ""), and its repository.

    ``dirty`` says whether the code had uncommitted changes.
    """
    code = checkout.of_package() or {"commit": "", "dirty": False}
    return SimpleNamespace(version=fedrepro.__version__, repository=repository(), **code)


@cache
def repository() -> str | None:
    """The repository's URL from the package's metadata or CITATION.cff, or None."""
    try:
        said = metadata(PACKAGE.name).get_all("Project-URL") or []
    except PackageNotFoundError:
        said = []
    urls = {label.lower(): url.strip() for label, _, url in (each.partition(",") for each in said)}
    file = ORIGIN / CITATION
    cited = read_yaml(file) if file.is_file() else {}
    known = [*(urls.get(label) for label in LABELS), cited.get("repository-code")]
    return next((url.rstrip("/") for url in known if url and url.startswith("https://")), None)
