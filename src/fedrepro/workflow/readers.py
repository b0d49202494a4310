"""Let Snakemake go on when what it prints cannot be written.

When the reader of its output goes away, such as `tee` or `head`, its handler of messages ends the
call, and leaves the rest unmade.
"""

import atexit
import logging
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
