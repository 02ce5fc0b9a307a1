"""Stage graphs: a branching model cut into pipeline stages that form a directed acyclic graph."""
