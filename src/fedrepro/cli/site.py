"""``fedrepro site``: render the start page and all pages other than those of tables and figures."""

import argparse

from fedrepro.cli.listing import meanings_of
from fedrepro.config.loading import load
from fedrepro.methods import registry
from fedrepro.report import site
from fedrepro.report.pages.method import MethodText
from fedrepro.report.papers import published
from fedrepro.support.plugins import Folders, source_of
from fedrepro.support.terminal import say
from fedrepro.workflow.rerun_checks import note_definition


def make_site(arguments: argparse.Namespace) -> None:
    workbench = load()
    scale = workbench.scale(arguments.scale)
    papers = published.load(workbench.root)
    path = site.write_site(workbench, papers, described_methods(workbench.plugins), scale)
    note_definition(workbench.root, path, scale)
    say(f"wrote {path}")


def described_methods(folders: Folders) -> list[MethodText]:
    """The contents of the methods' pages. Here, as fedrepro.report must not import torch."""
    return [
        MethodText(
            registry.describe(part),
            part.documentation,
            source_of(part.file),
            part.shown_file,
            registry.code_of_hooks(part),
            meanings_of(part.cls),
        )
        for part in registry.parts(folders).values()
    ]
