"""Where a result comes from, and whether it is the one that would be made now."""
