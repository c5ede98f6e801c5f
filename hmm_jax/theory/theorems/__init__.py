"""The assumptions of the paper, the constructions of its theorems, and what each recovers beside the exact posterior.

`assumptions.py` decides when a theorem speaks; `recovery.py` has each theorem as a program.
"""
