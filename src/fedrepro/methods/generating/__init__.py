"""What methods share that train generators and discriminators."""
