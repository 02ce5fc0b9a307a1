"""Certificates: `writer` makes them, `checker` checks them alone."""
