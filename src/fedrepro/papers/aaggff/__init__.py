"""AAggFF, thesis chapter III (Hahn et al., ICML 2024)."""
