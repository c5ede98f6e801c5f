"""The theorems that apply to the tasks of Figure 3 (left), and the accuracy that KL alone guarantees.

`study.py` runs it on the HMMs and tasks of prompt_vs_head.
"""
