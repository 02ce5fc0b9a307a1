"""The published algorithms."""
