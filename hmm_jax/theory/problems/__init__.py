"""Distributions and tasks on which theorems are tried: random families, texts, the gap in a proof.

The proof is that of the first arXiv version.

A problem is a distribution with a task; `exact/problem.py` has its types.
"""
