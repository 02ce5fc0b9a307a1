"""What comes in and goes out: files, rows, settings."""
