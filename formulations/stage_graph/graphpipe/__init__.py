"""GraphPipe's planner as published, and its recursion's wider forms."""
