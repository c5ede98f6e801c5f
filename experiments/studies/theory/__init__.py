"""Each theorem as a program on many random HMMs, beside constructions with one mistake that it must reject.

Also: the claims of the appendices, how often assumptions hold, whether any linear head can be right, a user's own HMM.
"""
