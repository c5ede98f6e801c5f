"""Which theorem applies to the tasks of Figure 3 (left), and what KL alone guarantees of accuracy.

`study.py` runs it on the HMMs and tasks of prompt_vs_head.
"""
