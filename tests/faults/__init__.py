"""The campaign of faults: a table of scenarios, and bad inputs. `FAULTS=whole pytest -m '' tests/faults` tries all.

A run is started as `python -m experiments.main`, disturbed from outside, and started again with the same command.
"""
