"""Say where a file is: its path from here, and a URL to open."""

import sys
from pathlib import Path

path = Path(sys.argv[1])
if not path.exists():
    sys.exit(f"{path} is missing, though the workflow ended well")
print(f"\nThe site: {path}\n          {path.resolve().as_uri()}")
