"""Local HTTP and SMTP servers that record what they receive."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Posted(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes


class HttpInbox:
    """Answers with `status` and `answer`."""

    def __init__(self) -> None:
        self.posted: list[Posted] = []
        self.status = 200
        self.answer = b"ok"
        self.headers: dict[str, str] = {}
        self.port = 0


@contextmanager
def http_inbox() -> Iterator[HttpInbox]:
    inbox = HttpInbox()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            inbox.posted.append(Posted(self.path, dict(self.headers), body))
            self.send_response(inbox.status)
            for name, value in inbox.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(inbox.answer)))
            self.end_headers()
            self.wfile.write(inbox.answer)

        def log_message(self, *_: object) -> None: ...

    with _serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as port:
        inbox.port = port
        yield inbox


class MailInbox:
    """Received mails as (sender, recipients, text)."""

    def __init__(self) -> None:
        self.mails: list[tuple[str, list[str], str]] = []
        self.refuses = False
        self.port = 0


@contextmanager
def mail_inbox() -> Iterator[MailInbox]:
    inbox = MailInbox()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            sender, recipients = "", []
            self._say("220 ready")
            while line := self.rfile.readline().decode().strip():
                word = line.upper().split(" ")[0].split(":")[0]
                if word == "DATA":
                    self._say("354 go on")
                    text = b""
                    while not text.endswith(b"\r\n.\r\n"):
                        text += self.rfile.readline()
                    inbox.mails.append((sender, recipients, text.decode()))
                elif word == "MAIL":
                    sender = line.partition(":")[2].split(">")[0].strip(" <")
                elif word == "RCPT":
                    recipients.append(line.partition(":")[2].split(">")[0].strip(" <"))
                if word == "RCPT" and inbox.refuses:
                    self._say("550 no such user")
                else:
                    self._say("221 bye" if word == "QUIT" else "250 fine")

        def _say(self, line: str) -> None:
            self.wfile.write(f"{line}\r\n".encode())

    with _serving(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)) as port:
        inbox.port = port
        yield inbox


@contextmanager
def _serving(server: Any) -> Iterator[int]:
    server.daemon_threads = True
    thread = threading.Thread(target=lambda: server.serve_forever(0.01), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)
