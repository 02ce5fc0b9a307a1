"""The combinatorial exact methods."""
