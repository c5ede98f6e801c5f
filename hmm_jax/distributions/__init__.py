"""Distributions of text: their parameters, named processes, sampling, files."""

import lazy_loader

# For `hmm_jax.processes`.
__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, ['processes'])
