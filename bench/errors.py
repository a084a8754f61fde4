"""Benchmark failures that are reported in one line instead of a traceback."""


class BenchError(Exception):
    """A measurement, a broker or a tool failed; the message names it and the fix."""
