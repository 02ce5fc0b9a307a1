"""Counter-examples: a search for the smallest instance on which a method loses, or the worst loss at a size."""
