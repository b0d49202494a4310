"""Build the documentation site (`make docs`): docs/, and pages made from code and papers' files.

Everything is copied to .docs first, because pages are added: the reference of all configuration
keys, a page for each paper, the notebooks. The builder, Zensical, has an environment of its own.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import config_reference
import yaml

ROOT = Path(__file__).parents[1]
BUILT = ROOT / ".docs"
PAPERS = ROOT / "reports/papers"
BUILDER = ROOT / ".tools/docs/bin/zensical"


def main() -> int:
    shutil.rmtree(BUILT, ignore_errors=True)
    pages = BUILT / "pages"
    shutil.copytree(ROOT / "docs", pages)
    settings = with_papers((pages / "mkdocs.yml").read_text(encoding="utf-8"))
    (BUILT / "mkdocs.yml").write_text(settings, encoding="utf-8")
    (pages / "mkdocs.yml").unlink()
    for name in ("CHANGELOG", "CONTRIBUTING"):
        shutil.copy(ROOT / f"{name}.md", pages / f"{name.lower()}.md")
    for path in pages.glob("*.md"):
        path.write_text(from_one_folder(path.read_text(encoding="utf-8")), encoding="utf-8")
    for path, text in generated():
        (pages / path).parent.mkdir(exist_ok=True)
        (pages / path).write_text(text, encoding="utf-8")
    copy_code(BUILT / "src")
    built = subprocess.run([BUILDER, "build", "--strict"], cwd=BUILT)
    if built.returncode == 0:
        print(f"{(BUILT / 'site/index.html').relative_to(ROOT)}; its search needs a server:")
        print("python -m http.server --directory .docs/site")
    return built.returncode


def from_one_folder(text: str) -> str:
    """A page whose links lead to pages in one folder, wherever the files are in the repository."""
    text = re.sub(r"\]\(\.\./(CHANGELOG|CONTRIBUTING)\.md", lambda m: f"]({m[1].lower()}.md", text)
    text = re.sub(r"\]\((\w+)\.ipynb\)", r"](\1.md)", text)
    return re.sub(r"\]\(docs/", "](", text)


def generated() -> Iterator[tuple[str, str]]:
    """The path and text of each page that is made from something else."""
    for name in config_reference.FILES:
        yield f"reference/{name}.md", config_reference.page(name)
    for name in systems():
        yield f"papers/{name}.md", about_paper(name)
    for path in sorted((ROOT / "docs").glob("*.ipynb")):
        yield f"{path.stem}.md", notebook(path)


def systems() -> list[str]:
    """The names of the papers, in the order of the site."""
    names: list[str] = of_papers("systems")
    return names


def of_papers(name: str) -> Any:
    """The content of a YAML file below ``reports/papers``; an empty list if there is none."""
    path = PAPERS / f"{name}.yaml"
    return (path.exists() and yaml.safe_load(path.read_text(encoding="utf-8"))) or []


def with_papers(settings: str) -> str:
    """The site's settings with a page for each paper in the navigation."""
    pages = [{of_papers(f"{name}/paper")["name"]: f"papers/{name}.md"} for name in systems()]
    return settings.replace("Papers: []", f"Papers: {json.dumps(pages)}")


def copy_code(folder: Path) -> None:
    """The package, whose docstrings name objects without Sphinx's roles."""
    for path in (ROOT / "src").rglob("*.py"):
        code = re.sub(r":\w+:`~?([\w.]+)`", r"`\1`", path.read_text(encoding="utf-8"))
        copy = folder / path.relative_to(ROOT / "src")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(code, encoding="utf-8")


def about_paper(name: str) -> str:
    """What a paper's folder says: its claims, and where text and code disagree."""
    paper, claims, found = (
        of_papers(f"{name}/{file}") for file in ("paper", "claims", "discrepancies")
    )
    cells = (PAPERS / name / "cells.csv").read_text(encoding="utf-8").count("\n") - 1
    parts = [
        f"# {paper['name']}: {paper['title']}",
        f"{paper['paper']}. It changes {paper['changes']}.",
        f"All of its {cells} printed cells have a target. `config/experiments/{name}.yaml` has the "
        f"settings, `reports/papers/{name}/` the printed numbers and our results. Tables, figures "
        f"and verdicts are pages of the site that `make reproduce` writes: `reports/site/{name}/`.",
        "## Claims",
        "In our own words. `fedrepro claims` says what printed numbers and our runs say of each.",
        *(f"**{each['name']}**: {each['says']}\n:   {each['source']}." for each in claims),
        "## Discrepancies",
        "Where the paper contradicts its released code or itself, or leaves something open, and "
        "how we read it. `@released` after a method's or setting's name selects what the released "
        "code does, where it is implemented.",
    ]
    for each in found:
        parts.append(f"### {each['number']}. {each['topic']}")
        parts.append(f"{each['text']}\n\n*Our reading:* {each['reading']}")
    return "\n\n".join(parts) + "\n"


def notebook(path: Path) -> str:
    """A notebook's text, code and results."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        for output in cell["outputs"]:
            data = {key: "".join(value) for key, value in output.get("data", {}).items()}
            drawn = data.get("image/svg+xml") or data.get("text/html")
            if drawn:  # in one block, which a blank line would end; the site styles its tables
                plain = re.sub(r"<style.*?</style>|(?<=<table)[^>]*", "", drawn, flags=re.DOTALL)
                block = "\n".join(line for line in plain.splitlines() if line.strip())
                parts.append(f"<div>{block}</div>")
            else:
                parts.append(
                    f"```text\n{''.join(output.get('text', [])) or data['text/plain']}\n```"
                )
    title, _, rest = parts[0].partition("\n")
    note = f"[This page as a notebook]({path.name}), which the tests run."
    return "\n\n".join([title, note, rest, *parts[1:]]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
