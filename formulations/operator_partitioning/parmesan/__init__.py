"""Parmesan's flow as published."""
