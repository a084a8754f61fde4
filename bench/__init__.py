"""Side-by-side benchmark of ottla and Apache Kafka: `python -m bench`.

Rules: one client for both systems, never two brokers at once, the page cache filled alike, the load in a process
of its own, and every loop bounded in time. Start reading at `run.py`; `goals.py` lists what must be
reached.
"""
