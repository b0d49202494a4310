"""How each kind of figure is drawn: one module per kind, with its name."""
