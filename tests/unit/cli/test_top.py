"""`ottla top`: figures from two readings, and errors without an endpoint."""

from urllib.error import URLError

import pytest
from rich.console import Console

from ottla.cli.main import main
from ottla.cli.reports.broker_screen import Sparkline, Trends, duration_text, rich_screen, short_number, text_screen
from ottla.operations.broker_rates import broker_figures
from ottla.operations.errors import OperationError
from ottla.operations.metric_readings import parse_metrics, read_metrics

BEFORE = """\
# HELP ottla_info What runs here.
ottla_info{version="0.1.0",node_id="1",cluster_id="abc"} 1
kafka_server_kafkaserver_brokerstate 3
process_start_time_seconds 1000.0
kafka_server_brokertopicmetrics_messagesin_total 100
kafka_server_brokertopicmetrics_bytesin_total 1000
kafka_server_brokertopicmetrics_bytesin_total{topic="orders"} 1000
kafka_server_brokertopicmetrics_bytesin_total{topic="logs"} 0
ottla_request_seconds_bucket{request="Produce",le="0.001"} 10
ottla_request_seconds_bucket{request="Produce",le="0.002"} 10
ottla_request_seconds_bucket{request="Produce",le="+Inf"} 10
ottla_request_seconds_count{request="Produce"} 10
ottla_request_seconds_count{request="Metadata"} 5
kafka_network_requestmetrics_totaltimems{request="Metadata",quantile="0.50"} 0.7
kafka_network_requestmetrics_totaltimems{request="Metadata",quantile="0.99"} 4.5
ottla_log_directory_free_bytes{directory="/data"} 25000000000
ottla_log_directory_size_bytes{directory="/data"} 100000000000
"""
NOW = (
    BEFORE.replace("messagesin_total 100", "messagesin_total 300")
    .replace("bytesin_total 1000", "bytesin_total 3000")
    .replace('topic="logs"} 0', 'topic="logs"} 2000')
    .replace('le="0.002"} 10', 'le="0.002"} 110')
    .replace('le="+Inf"} 10', 'le="+Inf"} 110')
    .replace('count{request="Produce"} 10', 'count{request="Produce"} 110')
)
SHOWN = broker_figures(parse_metrics(BEFORE, 0.0), parse_metrics(NOW, 2.0), 4661.0)


def test_rates_are_differences_over_the_time_between() -> None:
    assert (SHOWN.messages_in, SHOWN.bytes_in) == (100.0, 1000.0)
    assert (SHOWN.state, SHOWN.uptime_s, SHOWN.node_id) == ("running", 3661.0, "1")


def test_the_busiest_topic_is_first() -> None:
    assert [line.name for line in SHOWN.by_topic] == ["logs", "orders"]


def test_times_are_those_of_the_interval_if_there_were_requests_in_it() -> None:
    produce, metadata = SHOWN.by_request
    assert (produce.name, produce.rate, produce.p50_ms) == ("Produce", 50.0, 1.5)
    assert (metadata.name, metadata.rate, metadata.p50_ms, metadata.p99_ms) == ("Metadata", 0.0, 0.7, 4.5)


def test_a_broker_that_has_started_anew_shows_no_negative_rates() -> None:
    shown = broker_figures(parse_metrics(NOW, 0.0), parse_metrics(BEFORE, 1.0), 2000.0)
    assert (shown.messages_in, shown.by_request[0].rate) == (0.0, 0.0)


def test_the_text_names_everything() -> None:
    text = text_screen(SHOWN)
    assert "broker 1 running for 1 h 1 min  cluster abc" in text
    assert "25GB of 100GB free" in text
    assert "logs" in text
    assert "Produce" in text
    assert "\x1b" not in text


def test_the_screen_of_a_terminal_can_be_drawn() -> None:
    trends = Trends()
    trends.add(SHOWN)
    console = Console(record=True, width=120, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(rich_screen(SHOWN, trends))
    drawn = console.export_text()
    assert "busiest topics" in drawn
    assert "█" in drawn


def test_a_name_cannot_move_the_cursor() -> None:
    evil = NOW.replace('topic="logs"', 'topic="\x1b[2Jlogs"')
    assert "\x1b" not in text_screen(broker_figures(parse_metrics(BEFORE, 0.0), parse_metrics(evil, 1.0), 1.0))


def test_labels_may_contain_any_characters() -> None:
    reading = parse_metrics('a{x="q\\"u,o=}te",y="b\\\\s\\nl"} 1.5\nnonsense\n', 0.0)
    assert reading.value_or_zero("a", x='q"u,o=}te', y="b\\s\nl") == 1.5


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (3, "3"), (3.14, "3.1"), (999, "999"), (1234, "1.2k"), (56_789_000, "56.8M"), (2e15, "2000T")],
)
def test_numbers_are_short(number: float, text: str) -> None:
    assert short_number(number) == text


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 s"), (61, "1 min 1 s"), (90_000, "1 d 1 h"), (-5, "0 s")])
def test_durations_have_two_parts(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_a_sparkline_ends_with_the_newest_value() -> None:
    history = Sparkline()
    for value in (0, 1, 2, 8):
        history.add(value)
    assert history.line(6) == "  ▁▂▃█"


def test_an_endpoint_that_is_off_is_explained(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise URLError(ConnectionRefusedError(111, "Connection refused"))

    monkeypatch.setattr("urllib.request.OpenerDirector.open", refuse)
    assert main(["top", "--once", "--url", "http://127.0.0.1:9404"]) == 1
    errors = capsys.readouterr().err
    assert "connection refused" in errors
    assert "ottla.metrics.port=9404" in errors
    assert "--url" in errors


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://x", "127.0.0.1:9404"])
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(OperationError, match="begins with http"):
        read_metrics(url)
