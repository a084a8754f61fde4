"""Alerts about groups, brokers, disks and pipelines, with messages when they open and close."""
