"""How each kind of figure is drawn: one module a kind, by its name."""
