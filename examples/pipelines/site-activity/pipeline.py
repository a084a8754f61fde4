"""The same pipeline as pipeline.yaml, written in Python: `ottla pipeline run pipeline.py`."""

from __future__ import annotations

from ottla.pipelines import pipeline, stream, topic

TABLES = "site-activity.db"
EVENT = {
    "id": "string",
    "at": "timestamp",
    "user": "string",
    "session": "string",
    "action": "string",
    "page": "string",
    "service": "string",
    "ms": "double",
    "item": "string",
}

events = (
    topic("site-activity")
    .parse(format="json", schema=EVENT, required=["id", "at", "user", "page", "ms"])
    .watermark(time="at", delay="10 seconds")
    .deduplicate(by="id")
    .named("events")
)
viewed = "action = 'view'"

clean = stream("events").to(topic="site-activity-clean", key="user").named("clean")
views = (
    events.filter(where=viewed)
    .window(size="1 minute", by=["page"], count="views")
    .output("update")
    .to(sqlite=TABLES, table="views", mode="upsert", key=["window_start", "page"])
    .named("views")
)
hot_pages = (
    events.filter(where=viewed)
    .top(of="page", k=5, size="1 minute", slide="10 seconds", as_="views")
    .to(topic="hot-pages")
    .to(sqlite=TABLES, table="hot_pages")
    .named("hot-pages")
)
baskets = (
    events.filter(where="action = 'buy'")
    .associations(
        basket="session",
        item="item",
        size="2 minutes",
        slide="30 seconds",
        support=0.02,
        confidence=0.6,
        items_in_set_max=2,
    )
    .to(topic="bought-together")
    .to(sqlite=TABLES, table="bought_together")
    .named("baskets")
)
slow_requests = (
    events.anomalies(value="ms", by=["service"], threshold=20, history=200)
    .filter(where="verdict = 'anomaly' AND ms > expected")
    .to(topic="slow-requests", key="service")
    .to(sqlite=TABLES, table="slow_requests")
    .named("slow-requests")
)

pipeline(
    "site-activity",
    clean,
    views,
    hot_pages,
    baskets,
    slow_requests,
    description="clean, count, and find what is worth knowing",
    bootstrap_servers="127.0.0.1:9092",
    every="3 seconds",
    spark={"spark.sql.shuffle.partitions": "1"},
)
