"""Made-up data for examples, tests and `ottla demo`: seeded, so that the same numbers come out each time."""
