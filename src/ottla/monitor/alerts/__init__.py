"""Alerts: rules about groups, brokers, disks and pipelines, and messages when one opens and when it closes."""
