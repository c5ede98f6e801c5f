"""What is left of Theorems 3.3 and 3.6 when G is noisy, W nearly singular, a support leaks, or G is a BERT's.

`study.py` runs it; records hold accuracies by condition and way to the label.
"""
