"""What the methods share: costs as arrays, the graph's decompositions."""
