"""Every place of the code that removes a file, renames over one or removes a folder: whose it is.

A new place fails until its line here says why what it takes away is ours. Strings and tables have
methods of the same names; those with two arguments, and those of a line in ``NO_FILES``, are none.
"""

import ast
from collections import Counter
from collections.abc import Iterator

from support.places import ROOT

PACKAGE = ROOT / "src/fedrepro"
REMOVING = {
    "unlink", "rmtree", "rmdir", "rename", "renames", "replace", "removedirs", "move",
    "ftruncate", "truncate",
}  # fmt: skip
# Our own functions that do so.
OURS = {
    "write_atomically",
    "atomic_folder",
    "replace_folder",
    "settle",
    "absorb",
    "discard",
    "drop_result",
}

NAME = "a name that only we give"
HOLDER = "below a folder with the token of our lock in its name"
TOKEN = "the lock's or a random token is in the name"
MADE = "this very call has made it"
OUTPUT = "the user named it as the file to write"
RESULT = "a file of results or of the site, under the name that its rule gives"
LANDED = "a landed or printed file, which a tool of ours writes"
RECORDED = "a record in the folder lists it; what it does not list stays"

WHOSE = {
    # support
    "support/files.py write_atomically os.replace": "the caller's file: its line is here",
    "support/files.py write_atomically temporary.unlink": NAME,
    "support/files.py atomic_folder settle": RECORDED,
    "support/files.py atomic_folder shutil.rmtree": TOKEN,
    "support/files.py atomic_folder replace_folder": RECORDED,
    "support/files.py replace_folder os.rename": "what was there gets a name with the token",
    "support/files.py replace_folder absorb": RECORDED,
    "support/files.py settle absorb": RECORDED,
    "support/files.py settle os.rename": "the old folder, back to where nothing is",
    "support/files.py absorb absorb": RECORDED,
    "support/files.py absorb os.rename": "what is not ours, to where nothing is",
    "support/files.py absorb entry.unlink": RECORDED,
    "support/files.py absorb old.rmdir": "it is empty",
    "support/locks.py Held.release lock_of(self.folder).unlink": "the lock that this process holds",
    "support/locks.py _lock path.unlink": "a lock of ours, as its content says",
    "support/locks.py _open os.rename": MADE,
    "support/locks.py _open temporary.unlink": MADE,
    "support/checksummed_json.py write write_atomically": RESULT,
    # runs
    "run/runner.py _finish shutil.rmtree": HOLDER,
    "run/runner.py _leave drop_result": RECORDED,
    "run/replacement.py put_back settle": RECORDED,
    "run/replacement.py put_in_place replace_folder": RECORDED,
    "run/replacement.py drop_result absorb": RECORDED,
    "run/replacement.py move_result drop_result": RECORDED,
    "run/replacement.py move_result (folder / name).rename": "a run's file, to where nothing is",
    "run/checkpoint.py claim os.rename": HOLDER,
    "run/checkpoint.py _move_aside os.rename": "a holder's folder, to a name with its token",
    "run/checkpoint.py _bring_back os.rename": "such a folder, to where nothing is",
    "run/checkpoint.py _bring_back partial.rmdir": "it is empty",
    "run/checkpoint.py claim shutil.rmtree": HOLDER,
    "run/checkpoint.py leave discard": HOLDER,
    "run/checkpoint.py leave file.unlink": HOLDER,
    "run/checkpoint.py leave partial.rmdir": "it is empty",
    "run/checkpoint.py resume discard": HOLDER,
    "run/checkpoint.py keep atomic_folder": RECORDED,
    "run/checkpoint.py discard (partial / CHECKPOINT).unlink": HOLDER,
    "run/checkpoint.py discard shutil.rmtree": HOLDER,
    "run/store.py save_tree write_atomically": HOLDER,
    "run/store.py ClientStore.settle file.unlink": HOLDER,
    "run/landed_runs.py write (folder / name).unlink": LANDED,
    "run/landed_runs.py _write write_atomically": LANDED,
    "analysis/landscape_of_run.py landscape_through partial.unlink": NAME,
    "api/surroundings.py remove_own shutil.rmtree": "a temporary folder that this call has made",
    "api/comparing.py Chart.save write_atomically": OUTPUT,
    # workflow
    "workflow/snakemake_patches.py forget_dead_calls lock.unlink": "of dead calls",
    "workflow/rerun_checks.py note_definition write_atomically": "a folder of ours in .snakemake",
    "workflow/resources.py save_estimates write_atomically": NAME,
    "workflow/checks.py check_methods write_atomically": NAME,
    "methods/facts.py write write_atomically": NAME,
    # data
    "data/prepare.py prepare atomic_folder": RECORDED,
    "data/prepare.py prepare shutil.rmtree": MADE,
    "data/partition/partition.py Partition.save write_atomically": RESULT,
    "data/fetching/archives.py unpack atomic_folder": "a folder below one that this call has made",
    "data/fetching/http.py Fetcher._insist part.unlink": NAME,
    "data/fetching/http.py Fetcher._continue part.unlink": NAME,
    "data/fetching/http.py Fetcher.fetch_first part.replace": "its callers have looked",
    "data/fetching/raw_files.py unpacked_mirror shutil.rmtree": NAME,
    "data/fetching/raw_files.py _fetch_all (folder / archive).unlink": "this call has fetched it",
    "data/fetching/raw_files.py _fetch_all (folder / f'{(file.packed or file).name}.part').unlink"
    "": NAME,
    "data/fetching/raw_files.py take write_atomically": "_refuse_foreign has looked",
    "data/fetching/raw_files.py _record write_atomically": RESULT,
    "data/fetching/weights.py fetch_weights write_atomically": "there was no such file",
    "run/disk_space.py Removable.remove file.unlink": RECORDED,
    "run/disk_space.py Removable.remove folder.rmdir": "only an empty folder goes",
    # commands
    "cli/main.py _open path.unlink": OUTPUT,
    "cli/arguments.py new_folder atomic_folder": "it looks again whether there is one",
    "cli/init.py _add write_atomically": "there was no such file",
    "cli/init.py _write_paper write_atomically": "_check_free has looked for each",
    "cli/init.py _list write_atomically": "the list of papers gets a line",
    "cli/curve.py _write_page write_atomically": "the argument, if it is new or such a page",
    "cli/configuration.py write_schemas write_atomically": "under the name that editors find",
    # the site
    "report/pages/templates.py write_standalone write_atomically": RESULT,
    "report/pages/templates.py without_dead_links write_atomically": RESULT,
    "report/pages/templates.py Renderer.write_file write_atomically": RESULT,
    "report/pages/templates.py Renderer.remove_others file.unlink": NAME,
    "report/site.py Writer.runs (workbench.root / SITE / record.page).unlink": RESULT,
    # no names in a folder
    "engine/processes.py Stacked._mapped os.ftruncate": "memory that this process has made",
}
# Methods of strings, tables and mappings that are called with one argument.
NO_FILES = {
    "data/readers/silos.py": {"rename", "replace"},
}


def places() -> Iterator[str]:
    for file in sorted(PACKAGE.rglob("*.py")):
        name = file.relative_to(PACKAGE).as_posix()
        yield from (f"{name} {place}" for place in _in(ast.parse(file.read_text("utf-8")), name))


def _in(node: ast.AST, file: str, inside: str = "") -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        within = inside
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            within = f"{inside}.{child.name}" if inside else child.name
        name = _removes(child, NO_FILES.get(file, set()))
        if name:
            yield f"{inside} {name}".strip()
        yield from _in(child, file, within)


def _removes(node: ast.AST, no_files: set[str]) -> str:
    """What is called or passed on, if it removes; a method that is only passed on counts too."""
    if isinstance(node, ast.Name) and node.id in OURS | {"rmtree", "unlink"}:
        return node.id
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        # str.replace takes two arguments, os.replace too.
        of_text = node.func.attr == "replace" and len(node.args) + len(node.keywords) != 1
        if of_text and ast.unparse(node.func) != "os.replace":
            node.func.attr = "replaced"
    if isinstance(node, ast.Attribute) and node.attr in REMOVING - no_files:
        return ast.unparse(node)
    if isinstance(node, ast.Attribute) and ast.unparse(node) == "os.remove":  # lists have one too
        return "os.remove"
    return ""


def test_every_place_that_removes_says_whose_files_they_are() -> None:
    found = set(places())
    assert not sorted(found - WHOSE.keys()), "say whose files these are, or do not remove them"
    assert not sorted(WHOSE.keys() - found), "these places are gone"
    assert all(WHOSE.values())


def test_a_new_place_is_seen() -> None:
    code = """
import shutil
from pathlib import Path
def tidy(folder):
    shutil.rmtree(folder)
    folder.remove(1)
    os.remove(folder)
    "a".replace("a", "b")
    Path("a").replace("b")
    each = map(Path.unlink, folder)
class Keeper:
    def end(self):
        with atomic_folder(self.path): pass
"""
    assert Counter(_in(ast.parse(code), "x.py")) == Counter([
        "tidy shutil.rmtree", "tidy os.remove", "tidy Path('a').replace", "tidy Path.unlink",
        "Keeper.end atomic_folder",
    ])  # fmt: skip
