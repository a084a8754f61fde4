"""The load of a broker from two readings, of ottla's text and of Java's beans; missing metrics stay unknown."""

import http.server
import threading
from collections.abc import Iterator

import pytest

from ottla.operations.broker_rates import METRIC_PREFIXES, broker_load, request_loads
from ottla.operations.errors import OperationError
from ottla.operations.metric_readings import PasswordNeededError, parse_metrics, read_url

BEFORE = """
ottla_info{version="1",node_id="3",cluster_id="c",python="3"} 1
kafka_server_brokertopicmetrics_bytesin_total 1000
kafka_server_brokertopicmetrics_bytesin_total{topic="a"} 1000
kafka_server_brokertopicmetrics_messagesin_total 10
kafka_server_socket_server_metrics_incoming_byte_total{listener="A",networkProcessor="0"} 100
kafka_server_socket_server_metrics_incoming_byte_total{listener="B",networkProcessor="0"} 100
process_cpu_seconds_total 1.0
ottla_request_seconds_count{request="Produce"} 10
ottla_request_seconds_bucket{request="Produce",le="0.001"} 10
ottla_request_seconds_bucket{request="Produce",le="0.01"} 10
ottla_request_seconds_bucket{request="Produce",le="+Inf"} 10
"""
NOW = """
ottla_info{version="1",node_id="3",cluster_id="c",python="3"} 1
kafka_server_brokertopicmetrics_bytesin_total 3000
kafka_server_brokertopicmetrics_bytesin_total{topic="a"} 3000
kafka_server_brokertopicmetrics_messagesin_total 30
kafka_server_socket_server_metrics_incoming_byte_total{listener="A",networkProcessor="0"} 300
kafka_server_socket_server_metrics_incoming_byte_total{listener="B",networkProcessor="0"} 100
kafka_server_socket_server_metrics_connection_count{listener="A",networkProcessor="0"} 4
process_cpu_seconds_total 1.5
process_resident_memory_bytes 50000000
ottla_log_directory_size_bytes{directory="/a"} 100
ottla_log_directory_free_bytes{directory="/a"} 60
ottla_log_directory_size_bytes{directory="/b"} 200
ottla_log_directory_free_bytes{directory="/b"} 20
ottla_request_seconds_count{request="Produce"} 30
ottla_request_seconds_bucket{request="Produce",le="0.001"} 10
ottla_request_seconds_bucket{request="Produce",le="0.01"} 30
ottla_request_seconds_bucket{request="Produce",le="+Inf"} 30
kafka_network_requestmetrics_errors_total{request="Produce",error="NOT_LEADER_OR_FOLLOWER"} 4
kafka_log_log_size{topic="a",partition="0"} 7
"""
JAVA_BEFORE = """
kafka_network_requestmetrics_totaltimems_count{request="Fetch"} 100
kafka_network_requestmetrics_totaltimems_count{request="FetchConsumer"} 60
kafka_network_requestmetrics_totaltimems_count{request="FetchFollower"} 40
kafka_network_requestmetrics_totaltimems{request="FetchConsumer",quantile="0.99"} 7
kafka_network_requestmetrics_totaltimems_count{request="Produce"} 0
kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"} 0
java_lang_memory_heapmemoryusage_used 1000
"""
JAVA_NOW = JAVA_BEFORE.replace(" 100\n", " 120\n").replace(" 60\n", " 70\n").replace(" 40\n", " 50\n")


def test_rates_times_and_the_machine() -> None:
    found = broker_load(parse_metrics(BEFORE, 10.0), parse_metrics(NOW, 12.0))
    assert (found.bytes_in, found.records_in, found.network_in, found.cpu) == (1000.0, 10.0, 100.0, 0.25)
    assert (found.requests, found.connections, found.memory_bytes) == (10.0, 4, 50_000_000)
    assert (found.disk_free_bytes, found.disk_size_bytes) == (20, 200), "that of the fullest disk"
    assert found.produce_ms == pytest.approx(9.91, abs=0.1), "of the requests in between"
    assert found.bytes_out is None, "missing is not zero"
    assert found.fetch_ms is None
    (produce,) = request_loads(parse_metrics(BEFORE, 10.0), parse_metrics(NOW, 12.0))
    assert (produce.name, produce.rate, produce.errors) == ("Produce", 10.0, 2.0)


def test_a_broker_that_was_started_in_between_has_no_rates() -> None:
    found = broker_load(parse_metrics(NOW, 10.0), parse_metrics(BEFORE, 12.0))
    assert (found.bytes_in, found.cpu, found.requests) == (None, None, None)


def test_java_counts_fetches_twice_and_reports_its_heap() -> None:
    found = broker_load(parse_metrics(JAVA_BEFORE, 0.0), parse_metrics(JAVA_NOW, 2.0))
    assert found.requests == 10.0
    assert found.fetch_ms == 7
    assert found.produce_ms is None, "without a produce request the time is unknown, not 0 ms"
    assert found.memory_bytes == 1000
    assert found.disk_free_bytes is None
    requests = request_loads(parse_metrics(JAVA_BEFORE, 0.0), parse_metrics(JAVA_NOW, 2.0))
    assert [each.errors for each in requests] == [None] * 3, "they were not requested"


def test_only_what_is_looked_at_is_kept_and_the_load_is_the_same() -> None:
    before, now = parse_metrics(BEFORE, 10.0, METRIC_PREFIXES), parse_metrics(NOW, 12.0, METRIC_PREFIXES)
    assert broker_load(before, now) == broker_load(parse_metrics(BEFORE, 10.0), parse_metrics(NOW, 12.0))
    assert "kafka_log_log_size" not in now.samples
    assert len(now.samples["kafka_server_brokertopicmetrics_bytesin_total"]) == 1


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """Redirects, or requires a password."""

    def do_GET(self) -> None:
        self.send_response(401 if self.path.startswith("/locked") else 302)
        self.send_header("Location", "/other")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = http.server.HTTPServer(("127.0.0.1", 0), Elsewhere)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_redirects_to_other_addresses_are_not_followed(address: str) -> None:
    with pytest.raises(OperationError, match="302"):
        read_url(address, "/metrics", "")
    with pytest.raises(PasswordNeededError):
        read_url(f"{address}/locked", "/metrics", "")
