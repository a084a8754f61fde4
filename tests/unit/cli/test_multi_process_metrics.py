"""One metrics page for all brokers of a machine: requests to the brokers, and the merged answers."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.virtual_time import run

from ottla.base.broker_settings import load_broker_settings
from ottla.broker.metrics_endpoint.http_server import BadRequestError, HttpRequest, HttpResponse
from ottla.cli.processes import multi_process_metrics
from ottla.cli.processes.multi_process_metrics import MergedMetricsHandler, broker_metrics_url, metrics_credentials
from ottla.operations.errors import OperationError

PAGE = "# HELP up Up\n# TYPE up gauge\nup 1\n"


class Brokers:
    """The answers of each endpoint; a missing one does not answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pages: dict[str, str]) -> None:
        self.asked: list[tuple[str, str]] = []

        def ask(url: str, path: str, _cure: str, seconds_max: float) -> str:
            self.asked.append((url, path))
            if url not in pages:
                raise OperationError("no answer")
            return pages[url]

        monkeypatch.setattr(multi_process_metrics, "read_url", ask)

    def answer(self, path: str, login: str = "", method: str = "GET", **query: str) -> HttpResponse:
        async def body() -> HttpResponse:
            with ThreadPoolExecutor(1) as workers:
                together = MergedMetricsHandler({1: "http://a:1", 2: "http://a:2"}, login, workers)
                return await together(HttpRequest(method, path, query, {}, b""))

        return run(body())


def test_a_silent_broker_is_omitted_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch, {"http://a:1": PAGE})
    text = "".join(brokers.answer("/metrics").pieces)
    assert 'ottla_process_up{broker="1",url="http://a:1"} 1' in text
    assert 'ottla_process_up{broker="2",url="http://a:2"} 0' in text
    assert text.endswith('# HELP up Up\n# TYPE up gauge\nup{broker="1"} 1\n')
    ready = brokers.answer("/readyz")
    assert (ready.status, "".join(ready.pieces)) == (503, "not ready: broker 2\n")


def test_requests_are_forwarded_with_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch, {"http://r:p%40@a:1": PAGE, "http://r:p%40@a:2": PAGE})
    text = "".join(brokers.answer("/metrics", "r:p%40@", partitions="true").pieces)
    assert "p%40" not in text
    assert text.endswith('up{broker="1"} 1\nup{broker="2"} 1\n')
    assert brokers.asked[0] == ("http://r:p%40@a:1", "/metrics?partitions=true")
    assert brokers.answer("/readyz", "r:p%40@").status == 200


@pytest.mark.parametrize(
    ("method", "path", "words"),
    [
        ("GET", "/jolokia/list", "query one of http://a:1, http://a:2"),
        ("POST", "/metrics", "query one of http://a:1"),
        ("GET", "/other", "try /metrics"),
    ],
)
def test_requests_for_a_single_broker_are_rejected(
    monkeypatch: pytest.MonkeyPatch, method: str, path: str, words: str
) -> None:
    with pytest.raises(BadRequestError, match=words):
        Brokers(monkeypatch, {}).answer(path, method=method)


@pytest.mark.parametrize(
    ("more", "url", "login"),
    [
        ({}, "http://127.0.0.1:9405", ""),
        ({"host": "0.0.0.0", "insecure": "true"}, "http://127.0.0.1:9405", ""),
        ({"host": "::1"}, "http://[::1]:9405", ""),
        ({"host": "10.0.0.1", "insecure": "true"}, "http://10.0.0.1:9405", ""),
        (
            {"host": "0.0.0.0", "username": "r", "password": "p@/:", "ssl.keystore.location": "/k.pem"},
            "http://127.0.0.1:9405",
            "r:p%40%2F%3A@",
        ),
    ],
)
def test_the_url_of_a_process_follows_its_settings(more: dict[str, str], url: str, login: str) -> None:
    texts = {"ottla.metrics.port": "9404", **{f"ottla.metrics.{name}": value for name, value in more.items()}}
    settings = load_broker_settings(None, texts)
    assert (broker_metrics_url(settings, 9405), metrics_credentials(settings)) == (url, login)
