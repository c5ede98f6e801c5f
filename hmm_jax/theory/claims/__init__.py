"""Every claim, lemma and proof step of appendices A to C, each as the amount by which a case violates it.

`adversary.py` searches for violations.
"""
