"""Instances: what a planning problem is given. No solver and no cost formula."""

from instances.renamed import keep_old_names

keep_old_names()
