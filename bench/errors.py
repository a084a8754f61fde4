"""What goes wrong in a benchmark run and is worth one readable line instead of a traceback."""


class BenchError(Exception):
    """A measurement, a broker or a tool failed; the message says which and what to do."""
