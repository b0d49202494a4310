"""What holds for every method, tried out on a small federation."""
