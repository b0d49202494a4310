"""What methods that keep models on clients share."""
