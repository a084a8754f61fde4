"""Restart the brokers of a cluster one after the other: what decides (roll.py, facts.py, pure) and what acts."""
