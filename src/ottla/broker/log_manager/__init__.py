"""Log manager: opens, flushes, cleans, moves and checkpoints the logs of storage (Kafka's LogManager)."""
