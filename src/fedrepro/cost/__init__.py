"""Cost estimates: exact work from the specification times rates from tables and timings."""
