"""The HTTP base of the console, the registry and the monitor: server, limits, routes, errors, checks of requests."""
