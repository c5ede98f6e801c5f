"""The needs of any process: other processes, signals, locks, storage, CPU, progress, timing, exit statuses.

Nothing here imports trials, models or records.
"""
