"""SuPerFed, thesis chapter II (Hahn et al., KDD 2022)."""
