"""The wanted state of a cluster: compared with the current one, and applied to it."""
