"""An HTTP server that keeps what is posted to it: the content of alerts."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Inbox:
    """Whatever is posted, to any path."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        inbox = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                inbox.bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self.server.server_address[1]
        self.address = f"http://127.0.0.1:{self.port}/hook/key-of-the-bot"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def texts(self) -> list[str]:
        return [body["text"] for body in self.bodies]

    def told(self, rule: str) -> list[str]:
        """OPEN and CLOSED of a rule, in their order."""
        lines = [line for text in self.texts for line in text.splitlines()]
        return [line.split()[0] for line in lines if f" {rule}: " in line]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
