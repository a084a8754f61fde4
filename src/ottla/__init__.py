"""ottla: a streaming platform in Python that speaks Kafka's wire protocol."""

import os

__version__ = "0.1.0"

if os.environ.get("OTTLA_PURE"):
    from ottla.base.pure import prefer_source

    prefer_source()
