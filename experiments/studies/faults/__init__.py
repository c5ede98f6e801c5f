"""The fault campaign: runs are killed, damaged, raced, out of disk and given bad input, and then resumed.

`study.py` runs it.
"""
