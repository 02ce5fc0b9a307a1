"""The command line: typer stays in this package."""
