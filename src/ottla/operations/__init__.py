"""One way to reckon, for every tool, page and monitor: lag, resets, moves of replicas, findings, rates, search."""
