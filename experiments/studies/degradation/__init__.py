"""Theorems 3.3 and 3.6 where G is noisy, W nearly singular, zero probabilities become small, or G is a BERT's.

`study.py` runs it; records hold accuracies by condition and method.
"""
