"""Types of single values in experiment files, with the error text for wrong ones."""

from typing import TYPE_CHECKING, Annotated, Literal, get_args

from pydantic import Field

from fedrepro.engine.executor_facts import FACTS
from fedrepro.support.typed_yaml import Real, Whole, expected, like

Scale = Literal["demo", "compact", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
if TYPE_CHECKING:
    ExecutorName = str
else:
    ExecutorName = Literal["auto", *FACTS]
Scalar = bool | int | float | str | None
Hyperparameters = dict[str, Annotated[Scalar, expected("a number, a word, true, false or null")]]

NonNegativeWhole = Annotated[Whole, Field(ge=0), expected("a whole number of at least 0")]
Threads = Annotated[Whole, Field(ge=1, le=1024), expected("a whole number from 1 to 1024")]
NonNegativeReal = Annotated[
    Real, Field(ge=0, allow_inf_nan=False), expected("a finite number of at least 0")
]
Device = Annotated[str, *like(r"^(cpu|cuda(:\d{1,3})?)$", "cpu, cuda or cuda:<number>")]
# Names become parts of paths and of the site's URLs.
_NAME = "[A-Za-z0-9][A-Za-z0-9_.-]*"
Name = Annotated[str, *like(f"^{_NAME}$", "a name of letters, digits, '_', '-' and '.'", 80)]
# The name of a setting; `@released` selects the released code's values.
LocalSetting = Annotated[
    str,
    *like(f"^{_NAME}(@released)?$", "the name of a setting, optionally with '@released'", 90),
]
# The same, of this file or, as SYSTEM/SETTING, of another experiment file.
AnySetting = Annotated[
    str,
    *like(
        f"^({_NAME}/)?{_NAME}(@released)?$",
        "the name of a setting or SYSTEM/SETTING, optionally with '@released'",
        170,
    ),
]
# A setting of this file, in which * stands for the name of the replaced setting.
ColumnSetting = Annotated[
    str,
    *like(
        r"^[A-Za-z0-9*][A-Za-z0-9_.*-]*(@released)?$",
        "the name of a setting, in which * may stand for the row's",
        90,
    ),
]
MethodName = Annotated[
    str,
    *like(
        r"^[A-Za-z0-9_.]+(@released)?(\+[A-Za-z0-9_.]+(@released)?)*$",
        "method names joined by '+', such as ima+fedprox",
        120,
    ),
]
