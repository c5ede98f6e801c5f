"""The needs of any process: other processes, signals, locks, storage, memory, progress, timing, exit statuses.

Nothing here imports trials, models or records.
"""
