"""Print where a file is: its relative path, and a URL to open."""

import sys
from pathlib import Path

path = Path(sys.argv[1])
if not path.exists():
    sys.exit(f"{path} is missing, although the workflow succeeded")
print(f"\nThe site: {path}\n          {path.resolve().as_uri()}")
