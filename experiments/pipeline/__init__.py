"""The main line: settings -> distribution -> corpus -> pretrained model -> task -> tuned head and prompt -> record.

Start with `trial.py`, which is that line; `sweep.py` runs the grid of trials.
"""
