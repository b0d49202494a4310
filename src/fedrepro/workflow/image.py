"""The image in which jobs run with ``--sdm apptainer``."""

from pathlib import Path
from typing import Any

from fedrepro.support.errors import UserError, exit_on_user_error

IMAGE = "fedrepro.sif"


def expect_image(workflow: Any) -> None:
    """Expect the image if jobs run in it; otherwise each of them would fail.

    Raises:
        SystemExit: with status 2 after one line on stderr.
    """
    asked = {method.name for method in workflow.deployment_settings.deployment_method}
    with exit_on_user_error():
        if "APPTAINER" in asked and not Path(IMAGE).exists():
            raise UserError(
                f"{IMAGE}: expected the image of `--sdm apptainer` in this folder;"
                " docs/cluster.md of fedrepro says how to build it"
            )
