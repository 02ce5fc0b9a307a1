"""Measurements: suites of cases, rows, folders that are continued."""
