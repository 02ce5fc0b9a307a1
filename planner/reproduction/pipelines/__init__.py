"""Claims about orders that trainers run."""
