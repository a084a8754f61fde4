"""Burrow's API, field by field."""

import logging
from uuid import UUID

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.web.http_calls import ask

from ottla.base.names import TopicPartition
from ottla.monitor.cluster_monitor import ClusterMonitor, ClusterSettings
from ottla.monitor.http.app import LOGGER, MonitorApp
from ottla.monitor.lag_evaluation import Commit
from ottla.monitor.offset_store import ClassicMember, ClusterFacts, HistoryLimits, TopicFacts

NOW_MS = 1_700_000_000_000
P0 = TopicPartition("orders", 0)


class StillClock:
    def __init__(self) -> None:
        self.ms = NOW_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def monitor(clock: StillClock) -> ClusterMonitor:
    """A group `billing` that is 4 records behind on one of two partitions, and has stopped."""
    properties = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.password": "secret"}
    settings = ClusterSettings("local", "127.0.0.1:9092,other:9092", properties, limits=HistoryLimits(intervals=3))
    made = ClusterMonitor(settings, clock=clock)
    made.store.set_topics({"orders": TopicFacts(UUID(int=1), 2), "empty": TopicFacts(UUID(int=2), 1)})
    made.store.members.set_classic("billing", [ClassicMember("client-1", "/10.0.0.7", [P0])])
    for before_ms in (60_000, 31_000):
        made.store.add_end(P0, 100, NOW_MS - before_ms)
    for second, offset in enumerate((94, 95, 96)):
        at_ms = NOW_MS - 30_000 + second * 1_000
        made.store.add_commit("billing", P0, Commit(offset, at_ms, None, second), at_ms)
    made.store.add_end(P0, 100, NOW_MS)
    made.facts = ClusterFacts("id", 1, {1: "127.0.0.1:9092"}, {}, ())
    made.facts_ms = made.ends_ms = NOW_MS
    made.has_read_old_commits = True
    return made


@pytest.fixture
def app(monitor: ClusterMonitor) -> MonitorApp:
    return MonitorApp({"local": monitor})


def commit(offset: int, second: int, lag: int) -> dict[str, int]:
    at_ms = NOW_MS - 30_000 + second * 1_000
    return {"offset": offset, "timestamp": at_ms, "observedAt": at_ms, "lag": lag}


STOPPED = {
    "topic": "orders",
    "partition": 0,
    "owner": "/10.0.0.7",
    "client_id": "client-1",
    "status": "STOP",
    "ottla_status": "OK",  # nothing has come for half a minute only
    "start": commit(94, 0, 6),
    "end": commit(96, 2, 4),
    "current_lag": 4,
    "complete": 1.0,
}
UNSEEN = {
    "topic": "orders",
    "partition": 1,
    "owner": "",
    "client_id": "",
    "status": "OK",
    "ottla_status": "OK",
    "start": None,
    "end": None,
    "current_lag": 0,
    "complete": 0.0,
}


def test_status_shows_what_is_not_well(app: MonitorApp) -> None:
    answer = ask(app, "/v3/kafka/local/consumer/billing/status")
    assert answer.status == 200
    found = answer.json
    assert found.pop("request") == {"url": "/v3/kafka/local/consumer/billing/status", "host": app.hostname}
    assert found == {
        "error": False,
        "message": "consumer status returned",
        "status": {
            "cluster": "local",
            "group": "billing",
            "status": "ERR",
            "complete": 0.5,
            "partitions": [STOPPED],
            "partition_count": 2,
            "maxlag": STOPPED,
            "totallag": 4,
            "ottla_status": "OK",
        },
    }


def test_lag_shows_all_partitions(app: MonitorApp) -> None:
    assert ask(app, "/v3/kafka/local/consumer/billing/lag").json["status"]["partitions"] == [STOPPED, UNSEEN]


@pytest.mark.parametrize("path", ["/v3/kafka/local/consumer/none/status", "/v3/kafka/none/consumer/billing/lag"])
def test_a_group_that_is_not_there_is_not_found(app: MonitorApp, path: str) -> None:
    answer = ask(app, path)
    assert (answer.status, answer.json["error"], answer.json["status"]["status"]) == (404, False, "NOTFOUND")
    assert answer.json["status"]["ottla_status"] == "NOTFOUND"
    assert answer.json["status"]["complete"] == 1.0


def test_detail_of_a_group_has_a_place_for_every_partition(app: MonitorApp, monitor: ClusterMonitor) -> None:
    found = ask(app, "/v3/kafka/local/consumer/billing").json
    assert (found["message"], list(found["topics"])) == ("consumer detail returned", ["orders"])
    first, second = found["topics"]["orders"]
    assert first == {
        "offsets": [commit(94, 0, 6), commit(95, 1, 5), commit(96, 2, 4)],
        "owner": "/10.0.0.7",
        "client_id": "client-1",
        "current-lag": 4,
    }
    assert second == {"offsets": [], "owner": "", "client_id": "", "current-lag": 0}
    monitor.store.add_commit("short", P0, Commit(100, NOW_MS, None, 9), NOW_MS)
    assert ask(app, "/v3/kafka/local/consumer/short").json["topics"]["orders"][0]["offsets"][:2] == [None, None]
    assert ask(app, "/v3/kafka/local/consumer/none").status == 404


@pytest.mark.parametrize(
    ("path", "message", "field", "value"),
    [
        ("/v3/kafka", "cluster list returned", "clusters", ["local"]),
        ("/v3/kafka/", "cluster list returned", "clusters", ["local"]),
        ("/v3/kafka/local/consumer", "consumer list returned", "consumers", ["billing"]),
        ("/v3/kafka/local/topic", "topic list returned", "topics", ["empty", "orders"]),
        ("/v3/kafka/local/topic/orders", "topic offsets returned", "offsets", [100]),
        ("/v3/kafka/local/topic/orders/consumers", "consumers of topic returned", "consumers", ["billing"]),
        ("/v3/kafka/local/topic/none/consumers", "consumers of topic returned", "consumers", []),
        ("/v3/config/cluster", "module list returned", "modules", ["local"]),
        ("/v3/config/notifier", "module list returned", "modules", []),
        ("/v3/alerts", "alerts returned", "open", []),
    ],
)
def test_lists(app: MonitorApp, path: str, message: str, field: str, value: object) -> None:
    answer = ask(app, path)
    assert (answer.status, answer.json["error"], answer.json["message"]) == (200, False, message)
    assert answer.json[field] == value
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/v3/kafka/none", "cluster module not found"),
        ("/v3/kafka/none/topic", "cluster not found"),
        ("/v3/kafka/none/consumer", "cluster not found"),
        ("/v3/kafka/none/topic/orders", "cluster or topic not found"),
        ("/v3/kafka/local/topic/none", "cluster or topic not found"),
        ("/v3/kafka/none/topic/orders/consumers", "cluster not found"),
        ("/v3/kafka/none/consumer/billing", "cluster or consumer not found"),
        ("/v3/config/none", "invalid request type"),
        ("/v3/config/cluster/none", "cluster module not found"),
    ],
)
def test_what_is_not_there(app: MonitorApp, path: str, message: str) -> None:
    answer = ask(app, path)
    assert (answer.status, answer.json["error"], answer.json["message"]) == (404, True, message)
    assert answer.json["request"] == {"url": path, "host": app.hostname}


@pytest.mark.parametrize("path", ["/", "/v3", "/v2/kafka", "/v3/kafka/a/b/c/d/e/f/g/h/i/j/k/l/m", "/v3/kafka/local/x"])
def test_unknown_paths_are_refused_in_burrows_words(app: MonitorApp, path: str) -> None:
    answer = ask(app, path)
    assert (answer.status, answer.json) == (404, {"error": True, "message": "invalid request type", "result": {}})


def test_settings_contain_no_secrets(app: MonitorApp) -> None:
    for path in ("/v3/config", "/v3/kafka/local", "/v3/config/cluster/local", "/v3/config/consumer/local"):
        answer = ask(app, path)
        assert answer.status == 200
        assert b"secret" not in answer.body
    module = ask(app, "/v3/kafka/local").json["module"]
    assert (module["servers"], module["offset-refresh"]) == (["127.0.0.1:9092", "other:9092"], 10)
    assert module["client-profile"]["sasl"]["name"] == "PLAIN"
    assert ask(app, "/v3/config/storage/default").json["module"]["intervals"] == 3
    assert ask(app, "/v3/config/evaluator/default").status == 200


def test_a_group_is_forgotten_until_its_next_commit(app: MonitorApp, monitor: ClusterMonitor) -> None:
    answer = ask(app, "/v3/kafka/local/consumer/billing", "DELETE")
    assert (answer.status, answer.json["error"], answer.json["message"]) == (200, False, "consumer group removed")
    assert monitor.groups() == []
    assert ask(app, "/v3/kafka/none/consumer/billing", "DELETE").status == 404


def test_names_may_hold_anything(app: MonitorApp, monitor: ClusterMonitor) -> None:
    name = 'a/b %2F ü "<script>'
    monitor.store.add_commit(name, P0, Commit(100, NOW_MS, None, 9), NOW_MS)
    answer = ask(app, "/v3/kafka/local/consumer/a%2Fb%20%252F%20%C3%BC%20%22%3Cscript%3E/status")
    assert (answer.status, answer.json["status"]["group"]) == (200, name)
    assert ask(app, "/v3/kafka/local/consumer/%ff/status").status == 400


def test_health(app: MonitorApp, monitor: ClusterMonitor) -> None:
    assert ask(app, "/burrow/admin").body == b"GOOD"
    assert ask(app, "/burrow/admin/ready").body == b"READY"
    monitor.has_read_old_commits = False
    assert (ask(app, "/burrow/admin/ready").status, ask(app, "/burrow/admin").status) == (503, 200)


@pytest.mark.parametrize("tail", ["consumer", "consumer/billing", "consumer/billing/status", "topic/orders/consumers"])
def test_groups_are_not_answered_until_old_commits_are_read(
    app: MonitorApp, monitor: ClusterMonitor, tail: str
) -> None:
    monitor.has_read_old_commits = False
    answer = ask(app, f"/v3/kafka/local/{tail}")
    assert (answer.status, answer.json["message"]) == (503, "not ready: commits are still being read")
    monitor.problem = "127.0.0.1:9092 refuses connections"
    assert "refuses connections" in ask(app, f"/v3/kafka/local/{tail}").json["message"]


def test_old_numbers_carry_their_age_and_are_judged_by_their_own_time(
    app: MonitorApp, monitor: ClusterMonitor, clock: StillClock
) -> None:
    monitor.store.add_commit("fine", P0, Commit(97, NOW_MS - 2_000, None, 10), NOW_MS)
    monitor.store.add_commit("fine", P0, Commit(99, NOW_MS, None, 11), NOW_MS)
    before = ask(app, "/v3/kafka/local/consumer/fine/status")
    clock.ms += 3_600_000
    after = ask(app, "/v3/kafka/local/consumer/fine/status")
    assert (before.headers["age"], after.headers["age"]) == ("0", "3600")
    assert before.json["status"]["status"] == after.json["status"]["status"] == "OK"


def test_log_level(app: MonitorApp) -> None:
    logger = logging.getLogger(LOGGER)
    before = logger.level
    try:
        assert ask(app, "/v3/admin/loglevel", "POST", b'{"level": "Debug"}').json["message"] == "set log level"
        assert ask(app, "/v3/admin/loglevel").json["level"] == "debug"
        for given, shown in ((b"warning", "warn"), (b"trace", "debug"), (b"fatal", "fatal")):  # Burrow's words
            ask(app, "/v3/admin/loglevel", "POST", b'{"level": "%s"}' % given)
            assert ask(app, "/v3/admin/loglevel").json["level"] == shown
            assert ask(app, "/v3/config").json["logging"]["level"] == shown
        assert ask(app, "/v3/admin/loglevel", "POST", b'{"level": "loud"}').status == 404
        for body in (b"", b"[]", b"{", b'{"level": 3}', b"[" * 10_000, b'"\xff"'):
            assert ask(app, "/v3/admin/loglevel", "POST", body).status == 400, body
        answer = ask(app, "/v3/admin/loglevel", "POST", b" " * 20_000)
        assert (answer.status, answer.json["error"]) == (413, True)
    finally:
        logger.setLevel(before)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("127.0.0.1:8000", 200),
        ("[::1]:8000", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("", 400),
        ("[", 400),
    ],
)
def test_only_known_hosts_are_answered(app: MonitorApp, host: str, status: int) -> None:
    assert ask(app, "/v3/kafka", host=host).status == status


def test_hosts_can_be_allowed(monitor: ClusterMonitor) -> None:
    assert ask(MonitorApp({}, hosts=["Monitor.example"]), "/v3/kafka", host="monitor.example:80").status == 200
    assert ask(MonitorApp({}, hosts=["*"]), "/v3/kafka", host="any.example").status == 200


def test_pages_of_other_origins_change_nothing(app: MonitorApp, monitor: ClusterMonitor) -> None:
    path = "/v3/kafka/local/consumer/billing"
    for origin in ("http://evil.example", "null", "http://localhost:9", "http://["):
        assert ask(app, path, "DELETE", origin=origin).status == 403
    assert monitor.groups() == ["billing"]
    assert ask(app, path, "DELETE", origin="http://localhost:8000").status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_are_refused(app: MonitorApp, method: str) -> None:
    answer = ask(app, "/v3/kafka/local/consumer/billing", method)
    assert (answer.status, answer.json["message"]) == (405, "method not allowed")


def test_metrics_have_burrows_names(app: MonitorApp, monitor: ClusterMonitor) -> None:
    monitor.store.add_commit('odd"\n', P0, Commit(100, NOW_MS, None, 9), NOW_MS)
    answer = ask(app, "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }
    group = (("cluster", "local"), ("consumer_group", "billing"))
    place = (("cluster", "local"), ("consumer_group", "billing"), ("partition", "0"), ("topic", "orders"))
    assert found["burrow_kafka_consumer_lag_total", *group] == 4
    assert found["burrow_kafka_consumer_status", *group] == 3
    assert found["burrow_kafka_consumer_partition_lag", *place] == 4
    assert found["burrow_kafka_consumer_current_offset", *place] == 96
    assert found["burrow_kafka_topic_partition_status", *place] == 4
    end = (("cluster", "local"), ("partition", "0"), ("topic", "orders"))
    assert found["burrow_kafka_topic_partition_offset", *end] == 100
    lag = (("cluster", "local"), ("group", "billing"), ("partition", "0"), ("topic", "orders"))
    assert found["consumer_lag", *lag] == 4
    odd = (("cluster", "local"), ("consumer_group", 'odd"\n'), ("partition", "0"), ("topic", "orders"))
    assert found["burrow_kafka_consumer_partition_lag", *odd] == 0
    assert ("burrow_kafka_topic_partition_status", *odd) not in found  # not all commits were seen yet
    assert found["ottla_monitor_ready", ("cluster", "local")] == 1
