"""Distributions and tasks on which theorems are tried: random families, texts, counterexamples, the gap in a proof.

A problem is a distribution with a task; `exact/problem.py` has its types.
"""
