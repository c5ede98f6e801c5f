"""The settings of experiments: fields that check themselves, in groups; the grid of trials; the methods of tuning.

They come from a ConfigDict or from the `config.json` of a run; `--help` and the messages for bad flags are here too.
"""
