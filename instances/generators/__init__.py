"""Instances that are generated: transformers, branching models, operator graphs, topologies."""
