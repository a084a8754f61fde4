"""Rolling restarts: the decisions (roll.py, pure) and their execution (driver.py)."""
