"""All kinds of figures and of tables without runs, papers' packages included."""

from typing import TYPE_CHECKING

from fedrepro.config.figures import FigureSpec
from fedrepro.config.tables import ComputedSpec
from fedrepro.support.papers import load_kinds
from fedrepro.support.typed_yaml import any_of

load_kinds()

if TYPE_CHECKING:
    Figure = FigureSpec
    Computed = ComputedSpec
else:
    Figure = any_of(FigureSpec, "kind")
    Computed = any_of(ComputedSpec, "kind")
