"""Activations by layer, patches, probes of belief states, and their pictures."""

from hmm_jax.layers import plots
