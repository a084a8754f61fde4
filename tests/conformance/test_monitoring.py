"""The metrics endpoint of a running broker: what clients did shows in it, under Kafka's names."""

import http.client
import json
import os
import re
import socket
import sqlite3
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families
from tests.certificates import Authority
from tests.conformance.peer import Peer
from tests.conformance.raw import Connection, compact_string, request_header
from tests.conformance.waiting import eventually
from tests.conftest import ottla_command

from ottla.operations.jolokia_readings import read_jolokia
from ottla.operations.metric_readings import read_metrics

pytestmark = pytest.mark.needs_ottla

ROOT = Path(__file__).parents[2]
ADDRESS = re.compile(r"metrics on (http://\S+)/metrics")
TOPIC = "orders"
RECORDS = 100


class Endpoint:
    """A broker's metrics endpoint, as Prometheus and Jolokia clients use it."""

    def __init__(self, broker: Any) -> None:
        found = ADDRESS.search(broker.log_text)
        assert found is not None, broker.log_text
        self.url = found[1]

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=10) as answer:
            return answer.read().decode()

    def samples(self, path: str = "/metrics") -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """As Prometheus' own parser reads them."""
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(self.get(path))
            for sample in family.samples
        }

    def ask(self, questions: Any) -> Any:
        body = json.dumps(questions).encode()
        with urllib.request.urlopen(f"{self.url}/jolokia/", data=body, timeout=10) as answer:
            return json.loads(answer.read())


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A broker that has taken and given some records."""
    from tests.conftest import Broker  # noqa: PLC0415 (the helper class of the fixtures)

    broker = Broker(tmp_path_factory.mktemp("metrics"), {"ottla.metrics.port": "0", "flush.messages": "50"}).start()
    try:
        with Peer(broker.bootstrap) as peer:
            peer.create_topic(TOPIC, 2)
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=5)
        for _ in range(RECORDS):
            producer.send(TOPIC, b"x" * 100)
        producer.close()
        consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, consumer_timeout_ms=2000)
        consumer.assign([TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)])
        consumer.seek_to_beginning()
        assert sum(1 for _ in zip(consumer, range(RECORDS), strict=False)) == RECORDS
        consumer.close()
        yield Endpoint(broker), broker
        broker.stop()
    finally:
        broker.discard()


@pytest.fixture
def endpoint(used: Any) -> Endpoint:
    return used[0]


def test_traffic_is_counted(endpoint: Endpoint) -> None:
    found = endpoint.samples()
    for labels in ((), (("topic", TOPIC),)):
        assert found["kafka_server_brokertopicmetrics_messagesin_total", labels] == RECORDS
        assert found["kafka_server_brokertopicmetrics_bytesin_total", labels] >= RECORDS * 100
        bytes_in = found["kafka_server_brokertopicmetrics_bytesin_total", labels]
        assert found["kafka_server_brokertopicmetrics_bytesout_total", labels] >= bytes_in
    assert found["kafka_server_replicamanager_partitioncount", ()] == 2
    assert found["kafka_controller_kafkacontroller_activecontrollercount", ()] == 1
    assert found["kafka_controller_kafkacontroller_globaltopiccount", ()] == 1


def test_requests_are_timed(endpoint: Endpoint) -> None:
    found = endpoint.samples()
    name = "kafka_network_requestmetrics_totaltimems"
    for request in ("Produce", "Fetch", "FetchConsumer", "Metadata", "ApiVersions"):
        assert found[f"{name}_count", (("request", request),)] > 0
        assert 0 < found[name, (("quantile", "0.99"), ("request", request))] < 60_000
    errors = {key: value for key, value in found.items() if key[0] == "kafka_network_requestmetrics_errors_total"}
    assert errors["kafka_network_requestmetrics_errors_total", (("error", "NONE"), ("request", "Produce"))] > 0


def test_prometheus_and_jolokia_tell_the_same_numbers(endpoint: Endpoint) -> None:
    bean = "kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec"
    answer = json.loads(endpoint.get(f"/jolokia/read/{bean}"))
    assert answer["status"] == 200
    assert answer["value"]["Count"] == endpoint.samples()["kafka_server_brokertopicmetrics_bytesin_total", ()]
    assert {"MeanRate", "OneMinuteRate", "FiveMinuteRate", "FifteenMinuteRate"} <= answer["value"].keys()


def test_our_own_readings_are_the_same_over_both(endpoint: Endpoint) -> None:
    plain, beans = read_metrics(endpoint.url), read_jolokia(f"{endpoint.url}/jolokia")
    for name in (
        "brokertopicmetrics_bytesin_total",
        "brokertopicmetrics_messagesin_total",
        "replicamanager_leadercount",
    ):
        told = plain.samples[f"kafka_server_{name}"]
        assert sorted(told, key=str) == sorted(beans.samples[f"kafka_server_{name}"], key=str)
    assert beans.value_or_zero("process_start_time_seconds") == pytest.approx(
        plain.value_or_zero("process_start_time_seconds"), abs=1
    )
    assert beans.value_or_zero("kafka_network_requestmetrics_totaltimems_count", request="Produce") > 0


def test_a_bulk_read_as_telegraf_sends_it(endpoint: Endpoint) -> None:
    """Patterns with attributes; each answer repeats its question, which is how Telegraf finds its place again."""
    questions = [
        {"type": "read", "mbean": "kafka.server:name=*,type=BrokerTopicMetrics,topic=*", "attribute": "Count"},
        {"type": "read", "mbean": "java.lang:type=Runtime", "attribute": ["Uptime", "Pid"]},
        {"type": "read", "mbean": "kafka.log:name=*,type=Log,topic=*,partition=*", "attribute": "Value"},
    ]
    topics, runtime, logs = endpoint.ask(questions)
    assert [answer["request"]["mbean"] for answer in (topics, runtime, logs)] == [q["mbean"] for q in questions]
    name = f"kafka.server:name=MessagesInPerSec,topic={TOPIC},type=BrokerTopicMetrics"
    assert topics["value"][name] == {"Count": RECORDS}
    assert runtime["value"]["Uptime"] > 0
    ends = [logs["value"][f"kafka.log:name=LogEndOffset,partition={n},topic={TOPIC},type=Log"]["Value"] for n in (0, 1)]
    assert sum(ends) == RECORDS


def test_partitions_are_shown_on_request(endpoint: Endpoint) -> None:
    name = "kafka_log_log_logendoffset"
    assert not any(key[0] == name for key in endpoint.samples())
    shown = endpoint.samples("/metrics?partitions=true")
    assert sum(value for key, value in shown.items() if key[0] == name) == RECORDS


def test_every_bean_that_is_found_can_be_read(endpoint: Endpoint) -> None:
    names = json.loads(endpoint.get("/jolokia/search/*:*"))["value"]
    assert len(names) > 80
    questions = [{"type": "read", "mbean": name} for name in names]
    answers = [answer for start in range(0, len(names), 200) for answer in endpoint.ask(questions[start : start + 200])]
    assert {answer["status"] for answer in answers} == {200}
    listed = json.loads(endpoint.get("/jolokia/list"))["value"]
    assert sum(len(beans) for beans in listed.values()) == len(names)


def test_rates_follow(endpoint: Endpoint) -> None:
    bean = "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec"
    deadline = time.monotonic() + 12
    while json.loads(endpoint.get(f"/jolokia/read/{bean}/OneMinuteRate"))["value"] == 0:
        assert time.monotonic() < deadline, "no rate after two ticks"
        time.sleep(0.2)


def test_a_client_whose_version_is_not_spoken_is_named_in_log_metrics_and_by_the_doctor(used: Any) -> None:
    """As a librdkafka of 2017 with api.version.request=false, and a newer one that tells its name first."""
    endpoint, broker = used
    fetch_v3 = request_header(1, 3, 7) + b"\0" * 30
    with Connection(broker.bootstrap) as connection:
        connection.send_frame(fetch_v3)
        assert connection.is_closed_by_peer()
    with Connection(broker.bootstrap) as connection:
        software = compact_string("old-shop") + compact_string("1.2") + b"\0"
        assert connection.ask(18, 3, software, flexible_header=True)[:2] == b"\0\0"
        connection.send_frame(fetch_v3)
        assert connection.is_closed_by_peer()
    labels = {"client_id": "raw", "request": "Fetch", "version": "3"}
    for name, version in (("unknown", "unknown"), ("old-shop", "1.2")):
        of_client = labels | {"client_software_name": name, "client_software_version": version}
        assert endpoint.samples()["ottla_unsupported_requests_total", tuple(sorted(of_client.items()))] == 1.0
    assert broker.log_text.count("client id 'raw', software unknown unknown: it requests Fetch v3") == 1
    arguments = ["doctor", "--bootstrap-server", broker.bootstrap, "--url", endpoint.url]
    done = subprocess.run([*ottla_command(), *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert "WARNING F13: client 'raw' (old-shop 1.2) is disconnected, because it requests Fetch v3" in done.stdout


def test_a_slow_client_and_a_flood_harm_no_other_client(used: Any) -> None:
    endpoint, broker = used
    host, _, port = endpoint.url.removeprefix("http://").partition(":")
    open_ = [socket.create_connection((host, int(port))) for _ in range(60)]
    try:
        for place, sock in enumerate(open_):
            sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x" if place % 2 else b"")
        with Peer(broker.bootstrap) as peer:
            assert TOPIC in peer.topic_names()
    finally:
        for sock in open_:
            sock.close()
    deadline = time.monotonic() + 5
    while True:
        try:
            assert endpoint.get("/healthz") == "ok\n"
            return
        except (urllib.error.HTTPError, OSError):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_the_registration_contains_the_port(used: Any) -> None:
    """As Kafka publishes JMX_PORT: CMAK and others look there."""
    endpoint, broker = used
    with sqlite3.connect(f"file:{broker.data_directory}/ottla.metadata.db?mode=ro", uri=True) as store:
        ((data,),) = store.execute("SELECT data FROM node WHERE parent = '/brokers/ids' AND name = '1'").fetchall()
    assert json.loads(data)["jmx_port"] == int(endpoint.url.rpartition(":")[2])


def test_files_for_grafana_and_prometheus_name_only_what_there_is(endpoint: Endpoint) -> None:
    shown = {name for name, _ in endpoint.samples()}
    named_in_files = metrics_in(ROOT / "deploy" / "grafana" / "ottla.json") | metrics_in(
        ROOT / "deploy" / "prometheus" / "alerts.yml"
    )
    assert len(named_in_files) > 25
    assert named_in_files - shown == set()


def metrics_in(path: Path) -> set[str]:
    """Every name of a metric in the expressions of a file."""
    return set(re.findall(r"\b(?:kafka|ottla|process|python)_[a-z0-9_]+\b", path.read_text()))


def test_a_port_in_use_stops_the_start_with_cause_and_cure(broker_factory: Any) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        broker = broker_factory(start=False, ottla_metrics_port=port)
        broker.launch()
        assert broker.wait() == 1
    assert f"the metrics endpoint cannot listen on 127.0.0.1:{port}: " in broker.log_text
    assert "choose another ottla.metrics.port" in broker.log_text


def test_without_a_port_there_is_no_endpoint(broker: Any) -> None:
    assert "metrics on" not in broker.log_text


def test_an_endpoint_for_all_the_world_must_be_wanted(broker_factory: Any) -> None:
    refused = broker_factory(start=False, ottla_metrics_port=0, ottla_metrics_host="0.0.0.0")
    refused.launch()
    assert refused.wait() == 1
    assert "ottla.metrics.host=0.0.0.0 lets other machines read the metrics: set ottla.metrics.ssl" in refused.log_text
    broker = broker_factory(ottla_metrics_port=0, ottla_metrics_host="0.0.0.0", ottla_metrics_insecure="true")
    warning = re.compile(r"WARN metrics on 0\.0\.0\.0:\d+: every client .* without a password")
    assert eventually(lambda: warning.search(broker.log_text) is not None)
    assert len(warning.findall(broker.log_text)) == 1


def test_tls_and_a_password_and_a_certificate_that_is_renewed(broker_factory: Any, tmp_path: Path) -> None:
    authority, store = Authority(), tmp_path / "metrics.pem"
    authority.issue("broker").pem(store)
    trusted = ssl.create_default_context(cafile=authority.certificate_pem(tmp_path / "ca.pem"))
    broker = broker_factory(
        ottla_metrics_port=0,
        ottla_metrics_host="0.0.0.0",
        ottla_metrics_ssl_keystore_location=store,
        ottla_metrics_username="reader",
        ottla_metrics_password="secret word",
    )
    found = re.search(r"metrics on https://0\.0\.0\.0:(\d+)/metrics", broker.log_text)
    assert found is not None, broker.log_text
    url = f"https://127.0.0.1:{found[1]}"

    def get(path: str, login: str = "") -> str:
        headers = {"Authorization": f"Basic {b64encode(login.encode()).decode()}"} if login else {}
        request = urllib.request.Request(f"{url}{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=10, context=trusted) as answer:
            return answer.read().decode()

    assert "ottla_info" in get("/metrics", "reader:secret word")
    assert get("/healthz") == "ok\n"
    for login in ("", "reader:wrong", "other:secret word"):
        for path in ("/metrics", "/jolokia", "/", "/nothing"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                get(path, login)
            assert refused.value.code == 401
    with pytest.raises((OSError, http.client.HTTPException)):
        urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/metrics", timeout=10)
    said = subprocess.run(
        [*ottla_command(), "top", "--once"],
        env={
            **os.environ,
            "OTTLA_METRICS_URL": url.replace("//", "//reader:secret%20word@"),
            "SSL_CERT_FILE": str(tmp_path / "ca.pem"),
        },
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert "connections" in said.stdout

    before = ssl.get_server_certificate(("127.0.0.1", int(found[1])))
    authority.issue("broker").pem(store)
    assert eventually(lambda: ssl.get_server_certificate(("127.0.0.1", int(found[1]))) != before)
    assert "secret word" not in broker.log_text


def test_a_certificate_that_cannot_be_used_stops_the_start(broker_factory: Any, tmp_path: Path) -> None:
    store = tmp_path / "metrics.pem"
    store.write_text("nothing")
    broker = broker_factory(start=False, ottla_metrics_port=0, ottla_metrics_ssl_keystore_location=store)
    broker.launch()
    assert broker.wait() == 1
    assert f"the metrics endpoint cannot use its certificate: {store}" in broker.log_text
