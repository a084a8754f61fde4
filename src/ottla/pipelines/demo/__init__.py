"""Generated data for examples, tests and `ottla demo`: seeded, so the numbers are reproducible."""
