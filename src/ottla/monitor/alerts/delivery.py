"""Sends messages: webhooks over HTTP, mail over SMTP. Blocking: for threads.

Rules:
1. An address is resolved once, judged, and that very address is connected to: a name cannot mean another machine a
   moment later. Private, loopback and link-local ones are refused unless the channel allows them.
2. No redirects, no proxies, no credentials in addresses; https verifies certificates. Of an answer no more than
   ANSWER_BYTES_MAX are read.
3. What went wrong is one sentence without the address, which may hold a secret.
"""

from __future__ import annotations

import http.client
import json
import smtplib
import socket
import ssl
from collections.abc import Callable, Sequence
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from ottla.base.clock import Clock
from ottla.monitor.alerts import messages
from ottla.monitor.alerts.machine import Event
from ottla.operations.public_addresses import first_inside

TIMEOUT_SECONDS: Final = 10.0
ANSWER_BYTES_MAX: Final = 16 << 10
HTTP_PORTS: Final = {"http": 80, "https": 443}


class DeliveryError(Exception):
    """A message that was not taken: one sentence without secrets."""


class Webhook(NamedTuple):
    """An address that takes JSON; `kind` says in which form."""

    kind: str  # slack, dingtalk, feishu, wecom, webhook
    url: str
    secret: str = ""
    allow_private: bool = False


class Mail(NamedTuple):
    """A mail server, and who writes to whom."""

    server: str
    port: int
    sender: str
    recipients: tuple[str, ...]
    security: str = "starttls"  # tls, starttls, none
    username: str = ""
    password: str = ""
    allow_private: bool = False


Channel = Webhook | Mail
Resolve = Callable[..., list[Any]]


def send(channel: Channel, events: Sequence[Event], clock: Clock) -> None:
    """Raises DeliveryError."""
    if isinstance(channel, Mail):
        _send_mail(channel, events)
    else:
        _post(channel, events, clock.now_ms())


def check_url(url: str) -> SplitResult:
    """Raises DeliveryError for an address that no webhook has; the sentence does not repeat it."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise DeliveryError("the url makes no sense") from None
    if parts.scheme not in HTTP_PORTS:
        raise DeliveryError("the url must begin with https:// or http://")
    if not parts.hostname or port == 0:
        raise DeliveryError("the url names no host")
    if parts.username or parts.password:
        raise DeliveryError("the url must not hold a user and password")
    if any(character <= " " or character == "\x7f" for character in url):
        raise DeliveryError("the url holds a blank or a control character")
    return parts


def public_address(
    host: str, port: int, *, allow_private: bool, resolve: Resolve = socket.getaddrinfo
) -> tuple[int, tuple[Any, ...]]:
    """The family and address to connect to. Raises DeliveryError if one that the name stands for is not allowed."""
    try:
        found = resolve(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise DeliveryError(f"the name {host} cannot be resolved") from None
    if not found:
        raise DeliveryError(f"the name {host} cannot be resolved")
    if not allow_private and first_inside(item[4][0] for item in found) is not None:
        raise DeliveryError(f"{host} is at a private address: set allow-private if it is meant")
    return found[0][0], found[0][4]


def _post(channel: Webhook, events: Sequence[Event], now_ms: int) -> None:
    url = channel.url
    if channel.kind == "dingtalk" and channel.secret:
        url += messages.dingtalk_signature(channel.secret, now_ms)
    body = {
        "slack": messages.slack_body,
        "dingtalk": messages.dingtalk_body,
        "feishu": lambda told: messages.feishu_body(told, channel.secret, now_ms // 1000),
        "wecom": messages.wecom_body,
        "webhook": messages.plain_body,
    }[channel.kind](events)
    answer = _exchange(check_url(url), json.dumps(body).encode(), channel.allow_private)
    refused = messages.refusal_in(answer)
    if refused and channel.kind != "webhook":
        raise DeliveryError(f"the service refuses: {refused}")


def _exchange(url: SplitResult, body: bytes, allow_private: bool) -> bytes:
    host, port = url.hostname or "", url.port or HTTP_PORTS[url.scheme]
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    try:
        connection.sock = _connect(host, port, allow_private, is_tls=url.scheme == "https")
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "ottla-monitor"}
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        found = answer.read(ANSWER_BYTES_MAX)
    except (OSError, http.client.HTTPException) as problem:
        raise DeliveryError(f"{host}: {_words(problem)}") from None
    finally:
        connection.close()
    if not 200 <= answer.status < 300:
        moved = " (redirects are not followed)" if 300 <= answer.status < 400 else ""
        raise DeliveryError(f"{host} answers {answer.status}{moved}")
    return found


def _connect(host: str, port: int, allow_private: bool, *, is_tls: bool) -> socket.socket:
    family, address = public_address(host, port, allow_private=allow_private)
    plain = socket.socket(family, socket.SOCK_STREAM)
    try:
        plain.settimeout(TIMEOUT_SECONDS)
        plain.connect(address)
        return ssl.create_default_context().wrap_socket(plain, server_hostname=host) if is_tls else plain
    except BaseException:
        plain.close()
        raise


def _send_mail(mail: Mail, events: Sequence[Event]) -> None:
    message = EmailMessage()
    message["From"] = mail.sender
    message["To"] = ", ".join(mail.recipients)
    message["Subject"] = messages.subject_line(events)
    message["Date"] = formatdate(usegmt=True)
    message["Message-ID"] = make_msgid(domain="ottla.invalid")
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(messages.text_of(events) + "\n")
    client = _Smtp(mail)
    try:
        client.connect(mail.server, mail.port)
        if mail.security == "starttls":
            client.starttls(context=ssl.create_default_context())
        if mail.username:
            client.login(mail.username, mail.password)
        client.send_message(message, mail.sender, list(mail.recipients))
    except smtplib.SMTPResponseException as problem:
        raise DeliveryError(f"{mail.server} answers {problem.smtp_code}") from None
    except (OSError, smtplib.SMTPException, ValueError) as problem:
        raise DeliveryError(f"{mail.server}: {_words(problem)}") from None
    finally:
        client.close()


class _Smtp(smtplib.SMTP):
    """A client that connects where it may, with TLS from the start if that is wanted."""

    def __init__(self, mail: Mail) -> None:
        self._mail = mail
        super().__init__(timeout=TIMEOUT_SECONDS)
        self._host = mail.server  # whom a certificate must name

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:  # noqa: ARG002 (theirs)
        return _connect(host, port, self._mail.allow_private, is_tls=self._mail.security == "tls")


def _words(problem: BaseException) -> str:
    if isinstance(problem, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {problem.verify_message}"
    if isinstance(problem, TimeoutError):
        return f"no answer within {TIMEOUT_SECONDS:g} s"
    return (getattr(problem, "strerror", None) or type(problem).__name__).lower()
