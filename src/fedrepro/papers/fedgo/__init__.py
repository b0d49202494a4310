"""FedGO (Jang et al., ICML 2025)."""
