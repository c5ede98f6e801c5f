"""Speed of inference, sampling and training beside dynamax, hmmlearn and Hugging Face.

Ours and the peer take turns in one process; `study.py` runs it.
"""
