"""The assumptions of the paper, the constructions of its theorems, and comparisons with the exact posterior.

`assumptions.py` decides whether a theorem's assumptions hold; `recovery.py` has each theorem as a program.
"""
