"""Let Snakemake go on without a reader of its output, and without a name of its user.

When the reader goes away, such as `tee` or `head`, its handler of messages ends the call, and
leaves the rest unmade. It asks for the user's name, which a container's user may not have.
"""

import atexit
import getpass
import logging
import os
import sys
from functools import cache
from typing import IO, cast

from fedrepro.support.terminal import Unfailing, let_go


@cache  # once per process
def outlive_readers() -> None:
    """Let no message fail in this process."""
    streams = sys.stdout, sys.stderr
    atexit.register(let_go, *streams)
    sys.stdout, sys.stderr = (cast(IO[str], Unfailing(stream)) for stream in streams)
    for handler in logging.getLogger("snakemake.logging").handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream in streams:
            handler.setStream(Unfailing(handler.stream))


def name_user() -> None:
    """Call the user by its number if it has no name; the name is for Snakemake's report only."""
    try:
        getpass.getuser()
    except (KeyError, OSError):  # OSError since Python 3.13
        os.environ["LOGNAME"] = f"uid {os.getuid()}"
