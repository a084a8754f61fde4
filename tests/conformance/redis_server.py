"""Debian's Redis as a process of a test: it may be killed, and comes back with what its file has."""

import shutil
import subprocess
from pathlib import Path
from typing import Any, Self

import redis
from tests.conformance.waiting import eventually
from tests.conftest import free_port

START_SECONDS_MAX = 20.0


class RedisServer:
    """A context manager that leaves nothing behind. By default every transaction is on disk before it is answered."""

    def __init__(self, folder: Path, *options: str, appendfsync: str = "always") -> None:
        program = shutil.which("redis-server")
        assert program, "Redis is not installed (Debian: apt-get install redis-server)"
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        where = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
        self._command = [program, *where, "--appendonly", "yes", "--appendfsync", appendfsync, *options]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        with (self._folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        assert eventually(self._answers, START_SECONDS_MAX), (self._folder / "redis.log").read_text()[-2000:]
        return self

    def client(self, **settings: Any) -> "redis.Redis":
        """Answers are text; a test that looks at bytes says `decode_responses=False`."""
        return redis.Redis.from_url(self.url, **({"decode_responses": True} | settings))

    def kill9(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def _answers(self) -> bool:
        try:
            with redis.Redis.from_url(self.url) as client:
                return bool(client.ping())
        except redis.AuthenticationError:
            return True
        except redis.RedisError:
            return False

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill9()
