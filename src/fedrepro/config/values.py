"""Types of single values in experiment files, with the error text for wrong ones."""

from typing import TYPE_CHECKING, Annotated, Literal, get_args

from pydantic import Field

from fedrepro.engine.executor_facts import FACTS
from fedrepro.support.typed_yaml import Real, Whole, expected

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
Device = Annotated[
    str, Field(pattern=r"^(cpu|cuda(:\d{1,3})?)$"), expected("cpu, cuda or cuda:<number>")
]
# Names become parts of paths and of the site's URLs.
Name = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=80),
    expected("a name of letters, digits, '_', '-' and '.'"),
]
# The name of a setting; `@released` selects the released code's values.
LocalSetting = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*(@released)?$", max_length=90),
    expected("the name of a setting, optionally with '@released'"),
]
# The same, of this file or, as SYSTEM/SETTING, of another experiment file.
AnySetting = Annotated[
    str,
    Field(
        pattern=r"^([A-Za-z0-9][A-Za-z0-9_.-]*/)?[A-Za-z0-9][A-Za-z0-9_.-]*(@released)?$",
        max_length=170,
    ),
    expected("the name of a setting or SYSTEM/SETTING, optionally with '@released'"),
]
# A setting of this file, in which * stands for the name of the replaced setting.
ColumnSetting = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9*][A-Za-z0-9_.*-]*(@released)?$", max_length=90),
    expected("the name of a setting, in which * may stand for the row's"),
]
MethodName = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9_.]+(@released)?(\+[A-Za-z0-9_.]+(@released)?)*$", max_length=120),
    expected("method names joined by '+', such as ima+fedprox"),
]
