"""Claims of GraphPipe's paper."""
