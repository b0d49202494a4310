"""How a server may decide on mixing coefficients: arithmetic on numpy arrays in float64."""
