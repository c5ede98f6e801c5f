"""Distributions of text: their parameters, named processes, sampling, files."""
