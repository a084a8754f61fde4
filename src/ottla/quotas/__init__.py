"""Fair shares: who may produce, fetch, ask, change topics and connect how fast. Pure: time is an argument."""
