"""Delivery of alert messages: webhooks over HTTP, mail over SMTP. Blocking.

Rules:
1. A host name is resolved once, checked, and the checked address is connected to, since a second resolution could
   return another one. Private, loopback and link-local addresses are refused unless the channel allows them.
2. No redirects, no proxies, no credentials in URLs; https verifies certificates. At most ANSWER_BYTES_MAX of a response
   are read.
3. Errors are one sentence without the URL, which may contain a secret.
4. Names of groups and topics are untrusted: control characters are escaped, and markup and mentions of the services are
   neutralized.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import smtplib
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, quote_plus, urlsplit

from ottla.base.clock import Clock
from ottla.base.text import escape_cell
from ottla.monitor.alerts.alert_states import Event, Transition
from ottla.operations.public_addresses import first_internal

TIMEOUT_SECONDS: Final = 10.0
ANSWER_BYTES_MAX: Final = 16 << 10
HTTP_PORTS: Final = {"http": 80, "https": 443}


class DeliveryError(Exception):
    """The message was rejected; one sentence without secrets."""


class Webhook(NamedTuple):
    """A URL that accepts JSON; `kind` selects the format."""

    kind: str  # slack, dingtalk, feishu, wecom, webhook
    url: str
    secret: str = ""
    allow_private: bool = False


class Mail(NamedTuple):
    """A mail server, sender and recipients."""

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
    """Send one message. Raises DeliveryError."""
    if isinstance(channel, Mail):
        _send_mail(channel, events)
    else:
        _post(channel, events, clock.now_ms())


def check_url(url: str) -> SplitResult:
    """Check the URL of a webhook. Raises DeliveryError, without the URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise DeliveryError("the url is invalid") from None
    if parts.scheme not in HTTP_PORTS:
        raise DeliveryError("the url must begin with https:// or http://")
    if not parts.hostname or port == 0:
        raise DeliveryError("the url names no host")
    if parts.username or parts.password:
        raise DeliveryError("the url must not contain a user and password")
    if any(character <= " " or character == "\x7f" for character in url):
        raise DeliveryError("the url contains a blank or a control character")
    return parts


def resolve_allowed_address(
    host: str, port: int, *, allow_private: bool, resolve: Resolve = socket.getaddrinfo
) -> tuple[int, tuple[Any, ...]]:
    """The address family and address to connect to. Raises DeliveryError if any resolved address is not allowed."""
    try:
        found = resolve(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise DeliveryError(f"the name {host} cannot be resolved") from None
    if not found:
        raise DeliveryError(f"the name {host} cannot be resolved")
    if not allow_private and first_internal(item[4][0] for item in found) is not None:
        raise DeliveryError(f"{host} is at a private address: set allow-private if it is meant")
    return found[0][0], found[0][4]


def _post(channel: Webhook, events: Sequence[Event], now_ms: int) -> None:
    url = channel.url
    if channel.kind == "dingtalk" and channel.secret:
        url += dingtalk_signature(channel.secret, now_ms)
    body = {
        "slack": slack_body,
        "dingtalk": dingtalk_body,
        "feishu": lambda told: feishu_body(told, channel.secret, now_ms // 1000),
        "wecom": wecom_body,
        "webhook": plain_body,
    }[channel.kind](events)
    answer = _http_post(check_url(url), json.dumps(body).encode(), channel.allow_private)
    refused = service_error(answer)
    if refused and channel.kind != "webhook":
        raise DeliveryError(f"the service refuses: {refused}")


def _http_post(url: SplitResult, body: bytes, allow_private: bool) -> bytes:
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
        raise DeliveryError(f"{host}: {_error_text(problem)}") from None
    finally:
        connection.close()
    if not 200 <= answer.status < 300:
        moved = " (redirects are not followed)" if 300 <= answer.status < 400 else ""
        raise DeliveryError(f"{host} answers {answer.status}{moved}")
    return found


def _connect(host: str, port: int, allow_private: bool, *, is_tls: bool) -> socket.socket:
    family, address = resolve_allowed_address(host, port, allow_private=allow_private)
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
    message["Subject"] = subject_line(events)
    message["Date"] = formatdate(usegmt=True)
    message["Message-ID"] = make_msgid(domain="ottla.invalid")
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(message_text(events) + "\n")
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
        raise DeliveryError(f"{mail.server}: {_error_text(problem)}") from None
    finally:
        client.close()


class _Smtp(smtplib.SMTP):
    """An SMTP client that connects only to checked addresses, optionally with implicit TLS."""

    def __init__(self, mail: Mail) -> None:
        self._mail = mail
        super().__init__(timeout=TIMEOUT_SECONDS)
        self._host = mail.server  # the name in the certificate

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:  # noqa: ARG002 (theirs)
        return _connect(host, port, self._mail.allow_private, is_tls=self._mail.security == "tls")


def _error_text(problem: BaseException) -> str:
    if isinstance(problem, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {problem.verify_message}"
    if isinstance(problem, TimeoutError):
        return f"no answer within {TIMEOUT_SECONDS:g} s"
    return (getattr(problem, "strerror", None) or type(problem).__name__).lower()


# ---- message texts
LINES_MAX: Final = 20
TEXT_MAX: Final = 3_500  # characters; WeCom's limit is 2048 bytes
WECOM_BYTES_MAX: Final = 2_000
LINE_MAX: Final = 500
_STEP_WORDS: Final = {Transition.OPENED: "OPEN", Transition.NOTIFIED: "OPEN", Transition.CLOSED: "CLOSED"}


def subject_line(events: Sequence[Event]) -> str:
    """A one-line summary: the subject of a mail."""
    first = events[0]
    rest = f" and {len(events) - 1} more" if len(events) > 1 else ""
    alert = first.alert
    return escape_cell(f"[ottla] {_STEP_WORDS[first.step]} {alert.rule}: {alert.subject} ({alert.cluster}){rest}")[:200]


def message_text(events: Sequence[Event]) -> str:
    """One line for each event."""
    lines = [_line(event) for event in events[:LINES_MAX]]
    if len(events) > LINES_MAX:
        lines.append(f"… and {len(events) - LINES_MAX} more")
    return "\n".join(lines)[:TEXT_MAX]


def slack_body(events: Sequence[Event]) -> dict[str, Any]:
    text = message_text(events).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {"text": text}


def dingtalk_body(events: Sequence[Event]) -> dict[str, Any]:
    return {"msgtype": "text", "text": {"content": message_text(events)}, "at": {"isAtAll": False}}


def feishu_body(events: Sequence[Event], secret: str = "", now_s: int = 0) -> dict[str, Any]:
    """With a secret the body is signed, as Feishu's custom bots require."""
    text = message_text(events).replace("<", "\uff1c")  # <at user_id="all"> would notify all members
    body: dict[str, Any] = {"msg_type": "text", "content": {"text": text}}
    if secret:
        digest = hmac.new(f"{now_s}\n{secret}".encode(), b"", hashlib.sha256).digest()
        body |= {"timestamp": str(now_s), "sign": base64.b64encode(digest).decode()}
    return body


def wecom_body(events: Sequence[Event]) -> dict[str, Any]:
    text = message_text(events).encode()[:WECOM_BYTES_MAX].decode("utf-8", "ignore")
    return {"msgtype": "text", "text": {"content": text}}


def plain_body(events: Sequence[Event]) -> dict[str, Any]:
    """The body for generic webhooks."""
    return {
        "text": message_text(events),
        "alerts": [
            {
                "state": "closed" if event.step is Transition.CLOSED else "open",
                "rule": event.alert.rule,
                "cluster": event.alert.cluster,
                "subject": event.alert.subject,
                "text": event.alert.text,
                "since_ms": event.alert.since_ms,
                "opened_ms": event.alert.opened_ms,
                "closed_ms": event.at_ms if event.step is Transition.CLOSED else None,
            }
            for event in events
        ],
    }


def dingtalk_signature(secret: str, now_ms: int) -> str:
    """The query string that a DingTalk bot with a secret requires."""
    digest = hmac.new(secret.encode(), f"{now_ms}\n{secret}".encode(), hashlib.sha256).digest()
    return f"&timestamp={now_ms}&sign={quote_plus(base64.b64encode(digest))}"


def service_error(answer: bytes) -> str:
    """The error in a response with status 200 of DingTalk, Feishu or WeCom; "" if there is none."""
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(found, Mapping):
        return ""
    for code, words in (("errcode", "errmsg"), ("code", "msg"), ("StatusCode", "StatusMessage")):
        if found.get(code) not in (None, 0):
            return escape_cell(f"{code} {found[code]}: {found.get(words, '')}")[:LINE_MAX]
    return ""


def _line(event: Event) -> str:
    alert = event.alert
    since = datetime.fromtimestamp(alert.since_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    head = f"{_STEP_WORDS[event.step]} {alert.rule}: {alert.subject} ({alert.cluster})"
    if event.step is Transition.CLOSED:
        seconds = max(0, event.at_ms - alert.since_ms) // 1000
        return escape_cell(f"{head} is over after {seconds} s; last: {alert.text}")[:LINE_MAX]
    return escape_cell(f"{head}: {alert.text}; since {since}")[:LINE_MAX]
