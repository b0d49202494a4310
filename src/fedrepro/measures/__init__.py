"""What is measured of a run, the package's and one's own: names, words, units, directions."""
