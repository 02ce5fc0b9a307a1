"""Many instances at once: where they come from, and how far from the optimum methods are on all of them."""
