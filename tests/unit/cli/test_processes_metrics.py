"""One page for all brokers of a machine: what is asked of whom, and what becomes of the answers."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from ottla.base.broker_settings import load_broker_settings
from ottla.broker.monitoring.http import BadRequestError, HttpAnswer, HttpRequest
from ottla.cli.running import processes_metrics
from ottla.cli.running.processes_metrics import Together, login_of, own_url
from ottla.operations.errors import OperationError
from virtual_time import run

PAGE = "# HELP up Up\n# TYPE up gauge\nup 1\n"


class Brokers:
    """What each endpoint answers; whoever is missing here does not answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pages: dict[str, str]) -> None:
        self.asked: list[tuple[str, str]] = []

        def ask(url: str, path: str, _cure: str, seconds_max: float) -> str:
            self.asked.append((url, path))
            if url not in pages:
                raise OperationError("nobody answers")
            return pages[url]

        monkeypatch.setattr(processes_metrics, "ask_page", ask)

    def answer(self, path: str, login: str = "", method: str = "GET", **query: str) -> HttpAnswer:
        async def body() -> HttpAnswer:
            with ThreadPoolExecutor(1) as workers:
                together = Together({1: "http://a:1", 2: "http://a:2"}, login, workers)
                return await together(HttpRequest(method, path, query, {}, b""))

        return run(body())


def test_who_does_not_answer_is_left_out_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch, {"http://a:1": PAGE})
    text = "".join(brokers.answer("/metrics").pieces)
    assert 'ottla_process_up{broker="1",url="http://a:1"} 1' in text
    assert 'ottla_process_up{broker="2",url="http://a:2"} 0' in text
    assert text.endswith('# HELP up Up\n# TYPE up gauge\nup{broker="1"} 1\n')
    ready = brokers.answer("/readyz")
    assert (ready.status, "".join(ready.pieces)) == (503, "not ready: broker 2\n")


def test_what_was_asked_is_asked_of_each_with_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch, {"http://r:p%40@a:1": PAGE, "http://r:p%40@a:2": PAGE})
    text = "".join(brokers.answer("/metrics", "r:p%40@", partitions="true").pieces)
    assert "p%40" not in text
    assert text.endswith('up{broker="1"} 1\nup{broker="2"} 1\n')
    assert brokers.asked[0] == ("http://r:p%40@a:1", "/metrics?partitions=true")
    assert brokers.answer("/readyz", "r:p%40@").status == 200


@pytest.mark.parametrize(
    ("method", "path", "words"),
    [
        ("GET", "/jolokia/list", "ask one of http://a:1, http://a:2"),
        ("POST", "/metrics", "ask one of http://a:1"),
        ("GET", "/other", "try /metrics"),
    ],
)
def test_what_only_one_broker_can_answer_is_refused(
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
def test_a_process_is_asked_where_its_settings_have_put_it(more: dict[str, str], url: str, login: str) -> None:
    texts = {"ottla.metrics.port": "9404", **{f"ottla.metrics.{name}": value for name, value in more.items()}}
    settings = load_broker_settings(None, texts)
    assert (own_url(settings, 9405), login_of(settings)) == (url, login)
