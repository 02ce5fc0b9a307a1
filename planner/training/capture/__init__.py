"""From a PyTorch model to an instance: traced without weights, measured op by op, gathered into nodes.

Everything here but `clusters` needs the extra ``torch``; commands import it where they use it.
"""
