"""Preferred leaders, and replicas that move: plans out of a snapshot, and runs that outlive pages and consoles."""
