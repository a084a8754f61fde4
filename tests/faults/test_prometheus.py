"""Prometheus (Debian's) scrapes a broker and remote-writes to a receiver, in the form that M3's coordinator takes:
snappy around Protobuf, by POST to /api/v1/prom/remote/write. Every number arrives under its name, with its value."""

from __future__ import annotations

import shutil
import struct
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import cramjam
import pytest
from tests.conformance.recipes import numbered, send
from tests.conformance.test_monitoring import Endpoint
from tests.conformance.waiting import eventually
from tests.conftest import free_port

pytestmark = [pytest.mark.faults, pytest.mark.needs_ottla]

PATH = "/api/v1/prom/remote/write"  # of M3's coordinator
CONFIGURATION = """\
global:
  scrape_interval: 1s
scrape_configs:
  - job_name: ottla
    static_configs:
      - targets: ["{target}"]
remote_write:
  - url: "{receiver}"
"""
Series = dict[tuple[tuple[str, str], ...], float]


class Receiver:
    """What M3's coordinator is for Prometheus; keeps the newest value of each series."""

    def __init__(self) -> None:
        self.newest: Series = {}
        self.headers: list[tuple[str, str | None, str | None]] = []
        received = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                version = self.headers.get("X-Prometheus-Remote-Write-Version")
                received.headers.append((self.path, self.headers.get("Content-Encoding"), version))
                for labels, value in series_of(bytes(cramjam.snappy.decompress_raw(body))):
                    received.newest[tuple(sorted(labels.items()))] = value
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}{PATH}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def value(self, name: str, **labels: str) -> float | None:
        """Of the one series with this name and these labels, whatever Prometheus has added."""
        wanted = {"__name__": name, **labels}
        added = {"job", "instance"}
        for series, value in list(self.newest.items()):
            if {key: each for key, each in series if key not in added} == wanted:
                return value
        return None

    def close(self) -> None:
        self._server.shutdown()


def series_of(request: bytes) -> Iterator[tuple[dict[str, str], float]]:
    """Of a WriteRequest (remote write 1.0): time series, which have labels and samples."""
    for number, series in fields(request):
        if number != 1:
            continue
        parts = list(fields(series))
        labels = [dict(fields(part)) for which, part in parts if which == 1]
        named = {label[1].decode(): label.get(2, b"").decode() for label in labels}
        for sample in (dict(fields(part)) for which, part in parts if which == 2):
            yield named, struct.unpack("<d", sample.get(1, bytes(8)))[0]


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Numbers of fields and what is in them, as Protobuf writes them."""
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        kind = tag & 7
        if kind == 0:
            value, at = varint(message, at)
            yield tag >> 3, value
            continue
        size = 8 if kind == 1 else 4 if kind == 5 else None
        if size is None:
            assert kind == 2
            size, at = varint(message, at)
        yield tag >> 3, message[at : at + size]
        at += size


def varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


@pytest.fixture(scope="module")
def prometheus() -> str:
    if shutil.which("prometheus") is None:
        command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "prometheus"]
        subprocess.run(command, check=True, capture_output=True)
    found = shutil.which("prometheus")
    assert found is not None
    return found


def test_scraped_metrics_arrive_at_the_remote_write_receiver(
    broker_factory: Any, prometheus: str, tmp_path: Path
) -> None:
    broker = broker_factory(ottla_metrics_port=0)
    endpoint = Endpoint(broker)
    send(broker.bootstrap, "orders", numbered(321))
    receiver = Receiver()
    configuration = tmp_path / "prometheus.yml"
    target = endpoint.url.removeprefix("http://")
    configuration.write_text(CONFIGURATION.format(target=target, receiver=receiver.url))
    command = [prometheus, f"--config.file={configuration}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    with (tmp_path / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{free_port()}"], stdout=log, stderr=log)
    try:

        def has_all() -> bool:
            return receiver.value("kafka_server_brokertopicmetrics_messagesin_total", topic="orders") == 321

        assert eventually(has_all, 60), (tmp_path / "prometheus.log").read_text()[-3000:]
        assert receiver.value("up") == 1
        names = {name for name, _ in endpoint.samples()}
        assert eventually(lambda: names <= {dict(series)["__name__"] for series in receiver.newest}, 30)
        assert set(receiver.headers) == {(PATH, "snappy", "0.1.0")}
    finally:
        process.terminate()
        process.wait(30)
        receiver.close()
