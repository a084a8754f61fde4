"""At-least-once sinks: a user function, and a web server that is busy, then refuses."""

from __future__ import annotations

import json
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelines.running import pipeline_of, produce, run_once

from ottla.pipelines import pipeline as written_pipeline
from ottla.pipelines import topic
from ottla.pipelines.sinks.batch import Batch, SinkError
from ottla.pipelines.sinks.function import FunctionSink
from ottla.pipelines.sinks.http_sink import HttpRequest, HttpSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE = """\
name: {name}
bootstrap.servers: {bootstrap}
dead_letters: false
from: {{topic: {name}}}
steps:
  - parse: {{format: json, schema: {{n: long}}}}
  - filter: {{where: "n < 100"}}
to:
  - {{foreach_batch: "writing:write", where: "n < 50"}}
  - {{http: "{url}/in?key=1", headers: {{Authorization: "Bearer ${{SINK_TOKEN}}"}}, batch_rows: 30, format: json-lines}}
"""
FUNCTION = """\
from pathlib import Path

def write(rows, batch_id):
    (Path(__file__).parent / f"batch-{batch_id}").write_text(" ".join(str(row.n) for row in rows.collect()))
"""


class Server(ThreadingHTTPServer):
    """Answers with `answers` as long as there are any, then well."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[tuple[int, bytes]] = []
        self.taken: list[tuple[str, str | None, bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status, words = self.server.answers.pop() if self.server.answers else (200, b"")
        if status == 200:
            self.server.taken.append((self.path, self.headers["Authorization"], body))
        self.send_response(status)
        self.send_header("Content-Length", str(len(words)))
        self.end_headers()
        self.wfile.write(words)

    def log_message(self, *words: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_a_function_and_a_busy_server_get_all_rows(
    spark: SparkSession, bootstrap: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"repeated-{uuid.uuid4().hex[:8]}"
    monkeypatch.setenv("SINK_TOKEN", "word")
    (tmp_path / "writing.py").write_text(FUNCTION)
    server.answers = [(503, b"starting"), (429, b"slowly")]
    produce(bootstrap, name, [{"n": number} for number in range(200)])
    pipeline = pipeline_of(FILE.format(name=name, bootstrap=bootstrap, url=server.url), tmp_path)
    counts = run_once(spark, pipeline, tmp_path / "state")
    assert [(count.came, count.kept) for count in counts] == [(200, 200), (200, 100)]
    assert sorted(map(int, (tmp_path / "batch-0").read_text().split())) == list(range(50))
    assert {(path, token) for path, token, _ in server.taken} == {("/in?key=1", "Bearer word")}
    rows = [[json.loads(line)["n"] for line in body.splitlines()] for _, _, body in server.taken]
    assert max(map(len, rows)) <= 30
    assert Counter(number for each in rows for number in each) == Counter(range(100))


def test_a_function_may_be_given_in_python(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    name, seen = f"given-{uuid.uuid4().hex[:8]}", dict[int, int]()
    produce(bootstrap, name, [{"n": number} for number in range(20)])

    def write(rows: DataFrame, batch_id: int) -> None:
        seen[batch_id] = rows.count()

    stream = topic(name).parse(format="json", schema={"n": "long"}).to(foreach_batch=write)
    written = written_pipeline(name, stream, bootstrap_servers=bootstrap, dead_letters=False)
    run_once(spark, written.model(), tmp_path)
    assert seen == {0: 20}


def test_what_goes_wrong_is_told_in_a_line(spark: SparkSession, server: Server) -> None:
    def fail(rows: DataFrame, batch_id: int) -> None:
        raise ValueError(f"no room for {rows.count()} rows")

    with pytest.raises(SinkError, match="function fail, batch 7: ValueError: no room for 3 rows"):
        FunctionSink(fail).write(spark.range(3), Batch("q", 7, ""))
    server.answers = [(422, b"id is\nno number")]
    with pytest.raises(SinkError, match=f"{server.url}/ refuses rows: 422 .* id is no number"):
        HttpSink(HttpRequest(f"{server.url}/?key=secret")).write(spark.range(3).coalesce(1), Batch("q", 0, ""))
    assert server.taken == []
