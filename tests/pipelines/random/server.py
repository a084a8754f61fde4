"""A web server that takes rows and is sometimes busy: the first request for a path is rejected."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BUSY = 503


class RowServer:
    """Started when its address is first requested; runs as long as the process."""

    def __init__(self) -> None:
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._server: ThreadingHTTPServer | None = None

    def __repr__(self) -> str:
        return f"RowServer({sum(map(len, self._rows.values()))} rows)"

    def url(self, label: str) -> str:
        if self._server is None:
            self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
            threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_address[1]}/{label}"

    def taken(self, label: str) -> list[dict[str, Any]]:
        return list(self._rows.get(f"/{label}", ()))

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def take(self, path: str, text: str) -> int:
        """The status."""
        if path not in self._rows:
            self._rows[path] = []
            return BUSY
        given = json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines()]
        self._rows[path] += given
        return 200

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        taking = self.take

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers["Content-Length"])).decode()
                self.send_response(taking(self.path, text))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        return Handler
