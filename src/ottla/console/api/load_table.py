"""The routes about load and topology: part of the table."""

from __future__ import annotations

from ottla.console.api import metrics, topology
from ottla.console.api.routing import GET, POST, PUT, Route
from ottla.console.people.rights import Role

CLUSTER = "/api/clusters/{cluster}"
VIEWER, ADMIN = Role.VIEWER, Role.ADMIN

LOAD_ROUTES = [
    Route(
        GET,
        f"{CLUSTER}/topology",
        topology.show,
        VIEWER,
        "brokers, and who copies from whom",
        topology.TopologyAnswer,
    ),
    Route(
        GET,
        f"{CLUSTER}/metrics",
        metrics.show,
        VIEWER,
        "the load of each broker, as its metrics tell it",
        metrics.MetricsAnswer,
        is_shared=False,
    ),
    Route(
        PUT,
        f"{CLUSTER}/metrics",
        metrics.put,
        ADMIN,
        "where brokers tell their metrics",
        metrics.MetricsAnswer,
        metrics.MetricsBody,
    ),
    Route(
        POST,
        f"{CLUSTER}/metric-tests",
        metrics.test,
        ADMIN,
        "ask every broker once for its metrics",
        metrics.TestAnswer,
        metrics.MetricsBody,
        is_change=False,
    ),
    Route(
        GET,
        f"{CLUSTER}/metrics/history",
        metrics.history,
        VIEWER,
        "the load of all brokers over the last `hours`",
        metrics.LoadHistory,
        is_shared=False,
    ),
    Route(
        GET,
        f"{CLUSTER}/brokers/{{broker}}/metrics",
        metrics.show_broker,
        VIEWER,
        "the load of a broker, now and over the last `hours`",
        metrics.BrokerMetrics,
        is_shared=False,
    ),
]
