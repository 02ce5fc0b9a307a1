"""Claims of Piper's paper."""
