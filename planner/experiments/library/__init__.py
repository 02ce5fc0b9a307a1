"""PlanLib: instances that everybody can solve, the best that is known of each, and how a method does on them."""
