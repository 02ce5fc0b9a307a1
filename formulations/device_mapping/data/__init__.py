"""The instance's numbers as arrays and tables."""
