"""Data sets: where they come from, how they are prepared, opened and shared out among clients."""

from fedrepro.data.prepared import Dataset, Split, open_dataset

__all__ = ["Dataset", "Split", "open_dataset"]
