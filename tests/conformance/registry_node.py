"""`ottla registry` as a process of its own, and a client of it."""

import json
import re
import signal
import subprocess
import urllib.error
import urllib.request
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from tests.conftest import ottla_command

READY = re.compile(r"ottla registry ready on (https?://\S+)")
SECONDS_MAX = 30.0


class RegistryNode:
    """`more` are options of the command, `client` those of Confluent's client, with `_` for `.`."""

    def __init__(self, bootstrap: str, topic: str, *more: str, **client: str) -> None:
        self.topic = topic
        words = ["registry", "--bootstrap-server", bootstrap, "--topic", topic, "--port", "0", *more]
        self.process = subprocess.Popen(
            [*ottla_command(), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        found = READY.match(self.process.stdout.readline())
        assert found is not None, self.process.communicate()[1]
        self.url = found[1]
        self.client = SchemaRegistryClient({"url": self.url, **{key.replace("_", "."): client[key] for key in client}})

    def stop(self) -> str:
        """What it has said on stderr."""
        self.process.send_signal(signal.SIGTERM)
        _, said = self.process.communicate(timeout=SECONDS_MAX)
        assert self.process.returncode == 0, said
        return said

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, {"content-type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS_MAX) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            return refused.code, json.load(refused)
