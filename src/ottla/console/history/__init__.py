"""What clusters and groups did in the last day, also over a restart: bounded, on disk, written seldom."""
