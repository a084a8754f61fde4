"""Self-healing and balancing: reassignments that the controller starts automatically."""
