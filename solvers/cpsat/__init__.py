"""CP-SAT: runs models, and looks into them."""
