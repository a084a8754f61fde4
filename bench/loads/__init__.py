"""The loads: each function runs in a process of its own (bench.worker) and returns the figures of one measurement."""
