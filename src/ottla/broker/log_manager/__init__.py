"""Log manager: opens, flushes, cleans, moves and checkpoints the logs of storage (Kafka's LogManager).

The log directories and their logs: storage/log_dirs.py.
"""
