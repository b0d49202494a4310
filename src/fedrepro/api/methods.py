"""List methods."""

import pandas as pd

from fedrepro.methods import registry


def methods() -> "pd.DataFrame":
    """The parts of compositions: name, kind, paper, hyperparameters with their defaults.

    Examples:
        >>> import fedrepro as fr
        >>> fr.methods().loc["fedprox", "paper"]
        'FedProx (Li et al., MLSys 2020, eq. 2).'
        >>> fr.methods().loc["fedprox", "hyperparameters"]["mu"]
        0.01
    """
    rows = [registry.describe(part) for part in registry.parts().values()]
    columns = ["name", "kind", "paper", "hyperparameters"]
    return pd.DataFrame(rows, columns=columns).set_index("name").sort_index()
