"""One way to reckon, for every tool, page and monitor: lag, resets, plans and progress of moves, findings, rates, search."""
