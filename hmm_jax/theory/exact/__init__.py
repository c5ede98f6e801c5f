"""Exact arithmetic in fractions and integers: linear algebra, posteriors, the constructions of the theorems.

It shares no code with the floating-point programs that it checks.
"""
