"""PyTorch: models as instances, plans as files of trainers, plans that run. Nothing below knows it."""
