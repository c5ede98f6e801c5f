"""What a run leaves: files written whole, records with their tuned arrays, checkpoints, environments, failures.

Whatever is read back is compared with its manifest first, and nothing is unpickled.
"""
