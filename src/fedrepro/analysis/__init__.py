"""What finished runs are looked at with, beyond their tables."""
