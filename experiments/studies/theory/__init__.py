"""Each theorem as a program on many random HMMs, and wrong constructions that the check must reject.

Also: how often assumptions hold, whether any linear head can be right, a user's own HMM.
"""
