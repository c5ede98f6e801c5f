"""The files of a run, written whole: records with their tuned arrays, checkpoints, environments, failures.

A record is done when its file is there and has its checksum; nothing is unpickled.
"""
