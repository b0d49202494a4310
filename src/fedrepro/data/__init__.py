"""Data sets: download, preparation, access, and partition among clients."""
