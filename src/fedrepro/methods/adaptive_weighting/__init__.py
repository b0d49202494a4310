"""What methods that set mixing coefficients share."""
