"""What a method's class declares, as :class:`fedrepro.methods.facts.Facts` has it."""

from pathlib import Path
from typing import Any

from fedrepro.engine.method import Method, Wrapper
from fedrepro.methods.registry import hyperparameters_of, part_in


def declared_by(source: Path | type[Any]) -> dict[str, Any]:
    """The attributes of ``Facts`` of a part's file or class.

    Raises:
        UserError: for a file that defines no part.
    """
    cls = part_in(source).cls if isinstance(source, Path) else source
    defaults, deviations = hyperparameters_of(cls), cls.deviations()
    released = {field.name: field.metadata["released"] for field in deviations}
    items = dict.fromkeys(str(field.metadata["item"]) for field in deviations)
    trains = issubclass(cls, Method) and not issubclass(cls, Wrapper)
    prefix = issubclass(cls, Wrapper) and cls.shared_prefix is not Method.shared_prefix
    return {
        "requires": tuple(getattr(cls, "requires", ())),
        "optional": tuple(getattr(cls, "optional", ())),
        "fields": tuple(defaults),
        "defaults": _plain(defaults),
        "released": _plain(defaults | released),
        "departures": tuple(items),
        "shares_prefix_with_inner": prefix,
        "steps": _steps_of(cls) if trains else "",
        "own_models": trains and _has_own_models(cls),
    }


def _has_own_models(cls: type[Method]) -> bool:
    own = cls.eval_model is not Method.eval_model
    return own and cls.classifies and not cls.own_classifier


def _steps_of(cls: type[Method]) -> str:
    if cls.centralized:
        return "pooled"
    if cls.interpolates:
        return "two models"
    hooks = ("loss", "gradient", "client_update")
    own = any(getattr(cls, hook) is not getattr(Method, hook) for hook in hooks)
    return "own" if own else "plain"


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Those that YAML can express."""
    return {
        name: value
        for name, value in values.items()
        if value is None or isinstance(value, bool | int | float | str)
    }
