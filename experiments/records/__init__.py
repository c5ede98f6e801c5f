"""What a run leaves: files written whole, records with their tuned arrays, checkpoints, environments, failures.

Records are checked against their manifest where there is one, and nothing is unpickled.
"""
