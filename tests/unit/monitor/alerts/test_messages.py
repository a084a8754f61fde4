"""Alerts in words and in the bodies of services."""

import base64
import hashlib
import hmac

import pytest

from ottla.monitor.alerts import messages
from ottla.monitor.alerts.machine import Alert, Event, Step

ALERT = Alert("stuck", "default", "group g", "ERR, 5 records behind", 1_700_000_000_000, 1_700_000_030_000, True)
OPENED = Event(Step.OPENED, ALERT, 1_700_000_030_000, True)
CLOSED = Event(Step.CLOSED, ALERT, 1_700_000_090_000, True)
LINE = "OPEN stuck: group g (default): ERR, 5 records behind; since 2023-11-14 22:13:20Z"


def test_a_line_an_event() -> None:
    assert messages.text_of([OPENED]) == LINE
    assert messages.text_of([CLOSED]) == (
        "CLOSED stuck: group g (default) is over after 90 s; last: ERR, 5 records behind"
    )
    assert messages.text_of([OPENED] * 25).splitlines()[20:] == ["… and 5 more"]
    assert messages.subject_line([OPENED, CLOSED]) == "[ottla] OPEN stuck: group g (default) and 1 more"


def test_bodies_of_the_services() -> None:
    assert messages.slack_body([OPENED]) == {"text": LINE}
    assert messages.dingtalk_body([OPENED])["text"] == {"content": LINE}
    assert messages.dingtalk_body([OPENED])["msgtype"] == "text"
    assert messages.feishu_body([OPENED]) == {"msg_type": "text", "content": {"text": LINE}}
    assert messages.wecom_body([OPENED]) == {"msgtype": "text", "text": {"content": LINE}}
    (plain,) = messages.plain_body([CLOSED])["alerts"]
    assert (plain["state"], plain["closed_ms"], plain["subject"]) == ("closed", CLOSED.at_ms, "group g")


def test_signatures() -> None:
    digest = hmac.new(b"key", b"1000\nkey", hashlib.sha256).digest()
    sign = base64.b64encode(digest).decode().replace("+", "%2B").replace("/", "%2F").replace("=", "%3D")
    assert messages.dingtalk_signature("key", 1_000) == f"&timestamp=1000&sign={sign}"
    signed = messages.feishu_body([OPENED], "key", 5)
    expected = base64.b64encode(hmac.new(b"5\nkey", b"", hashlib.sha256).digest()).decode()
    assert (signed["timestamp"], signed["sign"]) == ("5", expected)


@pytest.mark.parametrize("name", ["<!channel>", '<at user_id="all">', "a\nb", "\u202egnp.exe", "\x1b[2J", "&lt;"])
def test_names_of_anybodys_making_are_only_text(name: str) -> None:
    event = OPENED._replace(alert=ALERT._replace(subject=f"group {name}"))
    slack = messages.slack_body([event])["text"]
    assert "<" not in slack
    assert "\n" not in slack
    assert "<" not in messages.feishu_body([event])["content"]["text"]
    for character in ("\x1b", "\u202e", "\n"):
        assert character not in messages.text_of([event])
        assert character not in messages.subject_line([event])


def test_long_names_do_not_make_long_messages() -> None:
    event = OPENED._replace(alert=ALERT._replace(text="ü" * 100_000))
    assert len(messages.text_of([event] * 20)) <= messages.TEXT_MAX
    assert len(messages.wecom_body([event] * 20)["text"]["content"].encode()) <= messages.WECOM_BYTES_MAX


@pytest.mark.parametrize(
    ("answer", "refusal"),
    [
        (b"ok", ""),
        (b'{"errcode":0,"errmsg":"ok"}', ""),
        (b'{"errcode":310000,"errmsg":"sign not match"}', "errcode 310000: sign not match"),
        (b'{"code":19021,"msg":"sign match fail"}', "code 19021: sign match fail"),
        (b'{"StatusCode":0,"StatusMessage":"success"}', ""),
        (b"[]", ""),
        (b"[" * 100_000, ""),
        (b"\xff", ""),
    ],
)
def test_services_that_refuse_with_200(answer: bytes, refusal: str) -> None:
    assert messages.refusal_in(answer) == refusal
