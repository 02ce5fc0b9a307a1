"""Readers of instances from files, one module a format; imported only when a file is read."""
