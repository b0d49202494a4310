"""The computer and the packages that a result is computed with."""

import platform
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("fedrepro", "torch", "numpy", "pandas", "pyarrow", "safetensors")


@cache
def packages() -> dict[str, str]:
    """The versions of the packages that a result is computed and written with."""
    return {name: version(name) for name in PACKAGES}


def machine() -> dict[str, Any]:
    """Facts about this computer that can change the bits of a result.

    The kind of vector instructions is what PyTorch uses: it is missing while that is not imported.
    """
    facts: dict[str, Any] = {
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "processor": processor(),
    }
    if "torch" in sys.modules:
        facts["vector_instructions"] = sys.modules["torch"].backends.cpu.get_cpu_capability()
    return facts


@cache
def processor() -> str:
    """The processor's name."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.processor()
