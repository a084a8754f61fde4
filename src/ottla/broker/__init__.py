"""The broker process: wiring, request handling, and the I/O drivers of the pure packages below.

`log_manager` drives storage, `replica_manager` drives replication, `coordinator_service` drives groups and transactions
through coordination, `cluster` connects to the controller and the other brokers, `security` drives security,
`metrics_endpoint` serves the counters of metrics. The rules and state machines are in those packages, never here.
"""
