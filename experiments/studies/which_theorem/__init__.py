"""The theorems that apply to the tasks of Figure 3 (left).

`study.py` runs it on the HMMs and tasks of prompt_vs_head.
"""
