"""IMA (Zhou et al., IEEE TMC 2024)."""
