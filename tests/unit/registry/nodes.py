"""A registry with an in-memory topic: records are encoded, stored, decoded and applied as with a broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.registry.http.app import RegistryApp
from ottla.registry.kafka_store import FencedError
from ottla.registry.records import Record, decode_key, decode_value
from ottla.registry.registry import Registry
from ottla.registry.subjects.state import RegistryState
from ottla.web.hosts import AllowedHosts

JSON = [(b"content-type", b"application/json"), (b"host", b"127.0.0.1:8081")]


class ListWriter:
    def __init__(self) -> None:
        self.has_taken_over = False

    def step_down(self) -> None:
        self.has_taken_over = False


class ListLog:
    """The topic in memory; the next `fences` writes are rejected."""

    topic = "_schemas"
    cluster_id = "the-cluster"

    def __init__(self, state: RegistryState) -> None:
        self.state = state
        self.writer = ListWriter()
        self.written: list[tuple[bytes, bytes | None]] = []
        self.failure: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.fences = 0
        self.take_overs = 0

    async def open(self) -> int:
        return 0

    async def take_over(self) -> None:
        self.writer.has_taken_over = True
        self.take_overs += 1

    async def write(self, records: Sequence[Record]) -> int:
        if self.fences:
            self.fences -= 1
            self.writer.step_down()
            raise FencedError
        await asyncio.sleep(0)
        for record in records:
            self.add(record.key_bytes, record.value_bytes)
        return len(self.written) - 1

    def add(self, key: bytes, value: bytes | None) -> None:
        self.written.append((key, value))
        self.state.apply(decode_key(key), decode_value(value), key)

    async def wait_for_offset(self, offset: int) -> None: ...

    async def catch_up(self) -> None: ...

    async def close(self) -> None: ...

    @property
    def keys(self) -> list[str]:
        return [key.decode() for key, _ in self.written]


class Reply(NamedTuple):
    status: int
    body: Any
    headers: dict[str, str]

    @property
    def code(self) -> int:
        return int(self.body["error_code"])


class Node:
    """A registry and its HTTP side, in one loop."""

    def __init__(self, **options: Any) -> None:
        state = RegistryState()
        self.log = ListLog(state)
        self.registry = Registry(self.log, state, **options)  # type: ignore[arg-type]
        self.app = RegistryApp(self.registry, AllowedHosts())

    async def ask(
        self, method: str, target: str, body: Any = None, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> Reply:
        path, _, query = target.partition("?")
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [*headers, *JSON],
        }
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": data}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        raw = sent[1]["body"]
        try:
            answer = json.loads(raw)
        except ValueError:
            answer = raw.decode()
        return Reply(sent[0]["status"], answer, {key.decode(): value.decode() for key, value in sent[0]["headers"]})

    async def register(self, subject: str, schema: str, **more: Any) -> Reply:
        return await self.ask("POST", f"/subjects/{subject}/versions", {"schema": schema, **more})


def record(*fields: str, name: str = "R") -> str:
    """An Avro schema with fields of text; `name=default` makes one that may be missing."""
    made = []
    for item in fields:
        field, _, default = item.partition("=")
        made.append({"name": field, "type": "string", **({"default": default} if "=" in item else {})})
    return json.dumps({"type": "record", "name": name, "fields": made}, separators=(",", ":"))
