"""Arrays that a function of the user's own returns."""

from collections.abc import Mapping

import numpy as np

from fedrepro.data.catalogue.kinds import Plugin
from fedrepro.data.readers.content import Content, Source
from fedrepro.data.readers.own_arrays import SEVERAL, content_of
from fedrepro.support import plugins, rng
from fedrepro.support.errors import refusal


def read_plugin(spec: Plugin, source: Source) -> Content:
    """The arrays that a function of the user's own returns.

    Raises:
        UserError: if it can't be imported, fails, or returns something else.
    """
    file = spec.file
    assert file is not None
    function = getattr(plugins.import_file("data", file), spec.function, None)
    if not callable(function):
        why = f"expected a function {spec.function}"
        raise refusal(file, why, spec.function, code="missing")
    given = {} if source.path.absolute() == file.absolute() else {"path": source.path}
    with plugins.blamed(), rng.seeded(0):
        made = function(**given, **spec.arguments)
    if not isinstance(made, Mapping):
        kind = type(made).__name__
        wanted = "a dict of arrays x, y, client, split"
        raise refusal(file, f"returned a {kind}: expected {wanted}", spec.function, kind)
    x = made.get("x")
    inputs = x if isinstance(x, Mapping) else dict(enumerate(x)) if isinstance(x, tuple) else {}
    if inputs:
        others = {name: values for name, values in made.items() if name != "x"}
        made = others | {f"{SEVERAL}{name}": values for name, values in inputs.items()}
    arrays = {str(name): np.asarray(values) for name, values in made.items()}
    return content_of(arrays, spec.task, spec.test_fraction, file)
