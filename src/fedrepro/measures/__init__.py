"""Measures of runs, built-in and plug-ins: names, words, units, directions."""
