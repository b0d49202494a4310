"""Which samples each client holds."""
