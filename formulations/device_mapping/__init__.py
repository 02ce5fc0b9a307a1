"""Device mapping: the stages of a pipeline and their replicas placed on devices linked at unlike bandwidths."""
