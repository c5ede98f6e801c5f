"""The main line: settings -> distribution -> corpus -> pretrained model -> task -> tuned -> record.

Start with `trial.py`, which is that line; `sweep.py` runs the grid of trials.
"""
