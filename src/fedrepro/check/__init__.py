"""What a method's file, its hooks and a model of the user's own must keep to, and who checks it."""
