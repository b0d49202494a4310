"""From raw files to arrays: a file for each source of data."""
