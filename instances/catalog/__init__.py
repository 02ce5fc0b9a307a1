"""Named instances."""
