"""The combinatorial exact method and its tables."""
