"""The needs of any process: other processes, signals, locks, storage, memory, progress, timing, exit statuses.

Nothing here knows of trials, models or records.
"""
