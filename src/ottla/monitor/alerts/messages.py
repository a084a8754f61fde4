"""Alerts in words, and in the bodies that Slack, DingTalk, Feishu and WeCom take. Pure.

Names of groups and topics are anybody's making: control characters are written out, and what a service would take for
markup or for a call to everybody is made harmless.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote_plus

from ottla.monitor.alerts.machine import Event, Step

LINES_MAX: Final = 20
TEXT_MAX: Final = 3_500  # characters; WeCom takes 2048 bytes of a text, which is cut below
WECOM_BYTES_MAX: Final = 2_000
LINE_MAX: Final = 500
# C0 and C1 controls and the characters that reorder or hide text.
_DANGEROUS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_WORDS: Final = {Step.OPENED: "OPEN", Step.TOLD: "OPEN", Step.CLOSED: "CLOSED"}


def subject_line(events: Sequence[Event]) -> str:
    """One line for all: of a mail, or of a notification."""
    first = events[0]
    rest = f" and {len(events) - 1} more" if len(events) > 1 else ""
    alert = first.alert
    return _clean(f"[ottla] {_WORDS[first.step]} {alert.rule}: {alert.subject} ({alert.cluster}){rest}")[:200]


def text_of(events: Sequence[Event]) -> str:
    """A line an event."""
    lines = [_line(event) for event in events[:LINES_MAX]]
    if len(events) > LINES_MAX:
        lines.append(f"… and {len(events) - LINES_MAX} more")
    return "\n".join(lines)[:TEXT_MAX]


def slack_body(events: Sequence[Event]) -> dict[str, Any]:
    text = text_of(events).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {"text": text}


def dingtalk_body(events: Sequence[Event]) -> dict[str, Any]:
    return {"msgtype": "text", "text": {"content": text_of(events)}, "at": {"isAtAll": False}}


def feishu_body(events: Sequence[Event], secret: str = "", now_s: int = 0) -> dict[str, Any]:
    """With a secret the body is signed, as Feishu's custom bots ask for it."""
    text = text_of(events).replace("<", "\uff1c")  # <at user_id="all"> would call everybody
    body: dict[str, Any] = {"msg_type": "text", "content": {"text": text}}
    if secret:
        digest = hmac.new(f"{now_s}\n{secret}".encode(), b"", hashlib.sha256).digest()
        body |= {"timestamp": str(now_s), "sign": base64.b64encode(digest).decode()}
    return body


def wecom_body(events: Sequence[Event]) -> dict[str, Any]:
    text = text_of(events).encode()[:WECOM_BYTES_MAX].decode("utf-8", "ignore")
    return {"msgtype": "text", "text": {"content": text}}


def plain_body(events: Sequence[Event]) -> dict[str, Any]:
    """For a webhook of one's own."""
    return {
        "text": text_of(events),
        "alerts": [
            {
                "state": "closed" if event.step is Step.CLOSED else "open",
                "rule": event.alert.rule,
                "cluster": event.alert.cluster,
                "subject": event.alert.subject,
                "text": event.alert.text,
                "since_ms": event.alert.since_ms,
                "opened_ms": event.alert.opened_ms,
                "closed_ms": event.at_ms if event.step is Step.CLOSED else None,
            }
            for event in events
        ],
    }


def dingtalk_signature(secret: str, now_ms: int) -> str:
    """What is appended to the address of a bot with a secret."""
    digest = hmac.new(secret.encode(), f"{now_ms}\n{secret}".encode(), hashlib.sha256).digest()
    return f"&timestamp={now_ms}&sign={quote_plus(base64.b64encode(digest))}"


def refusal_in(answer: bytes) -> str:
    """DingTalk, Feishu and WeCom refuse with 200 and a code in the body; empty if they did not."""
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(found, Mapping):
        return ""
    for code, words in (("errcode", "errmsg"), ("code", "msg"), ("StatusCode", "StatusMessage")):
        if found.get(code) not in (None, 0):
            return _clean(f"{code} {found[code]}: {found.get(words, '')}")[:LINE_MAX]
    return ""


def _line(event: Event) -> str:
    alert = event.alert
    since = datetime.fromtimestamp(alert.since_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    head = f"{_WORDS[event.step]} {alert.rule}: {alert.subject} ({alert.cluster})"
    if event.step is Step.CLOSED:
        seconds = max(0, event.at_ms - alert.since_ms) // 1000
        return _clean(f"{head} is over after {seconds} s; last: {alert.text}")[:LINE_MAX]
    return _clean(f"{head}: {alert.text}; since {since}")[:LINE_MAX]


def _clean(text: str) -> str:
    return _DANGEROUS.sub(lambda match: match.group().encode("unicode_escape").decode(), text)
