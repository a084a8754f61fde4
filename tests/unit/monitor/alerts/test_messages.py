"""Alert messages as text and in the formats of services."""

import base64
import hashlib
import hmac

import pytest

from ottla.monitor.alerts import delivery
from ottla.monitor.alerts.alert_states import Alert, Event, Transition

ALERT = Alert("stuck", "default", "group g", "ERR, 5 records behind", 1_700_000_000_000, 1_700_000_030_000, True)
OPENED = Event(Transition.OPENED, ALERT, 1_700_000_030_000, True)
CLOSED = Event(Transition.CLOSED, ALERT, 1_700_000_090_000, True)
LINE = "OPEN stuck: group g (default): ERR, 5 records behind; since 2023-11-14 22:13:20Z"


def test_a_line_an_event() -> None:
    assert delivery.message_text([OPENED]) == LINE
    assert delivery.message_text([CLOSED]) == (
        "CLOSED stuck: group g (default) is over after 90 s; last: ERR, 5 records behind"
    )
    assert delivery.message_text([OPENED] * 25).splitlines()[20:] == ["… and 5 more"]
    assert delivery.subject_line([OPENED, CLOSED]) == "[ottla] OPEN stuck: group g (default) and 1 more"


def test_bodies_of_the_services() -> None:
    assert delivery.slack_body([OPENED]) == {"text": LINE}
    assert delivery.dingtalk_body([OPENED])["text"] == {"content": LINE}
    assert delivery.dingtalk_body([OPENED])["msgtype"] == "text"
    assert delivery.feishu_body([OPENED]) == {"msg_type": "text", "content": {"text": LINE}}
    assert delivery.wecom_body([OPENED]) == {"msgtype": "text", "text": {"content": LINE}}
    (plain,) = delivery.plain_body([CLOSED])["alerts"]
    assert (plain["state"], plain["closed_ms"], plain["subject"]) == ("closed", CLOSED.at_ms, "group g")


def test_signatures() -> None:
    digest = hmac.new(b"key", b"1000\nkey", hashlib.sha256).digest()
    sign = base64.b64encode(digest).decode().replace("+", "%2B").replace("/", "%2F").replace("=", "%3D")
    assert delivery.dingtalk_signature("key", 1_000) == f"&timestamp=1000&sign={sign}"
    signed = delivery.feishu_body([OPENED], "key", 5)
    expected = base64.b64encode(hmac.new(b"5\nkey", b"", hashlib.sha256).digest()).decode()
    assert (signed["timestamp"], signed["sign"]) == ("5", expected)


@pytest.mark.parametrize("name", ["<!channel>", '<at user_id="all">', "a\nb", "\u202egnp.exe", "\x1b[2J", "&lt;"])
def test_names_are_never_markup(name: str) -> None:
    event = OPENED._replace(alert=ALERT._replace(subject=f"group {name}"))
    slack = delivery.slack_body([event])["text"]
    assert "<" not in slack
    assert "\n" not in slack
    assert "<" not in delivery.feishu_body([event])["content"]["text"]
    for character in ("\x1b", "\u202e", "\n"):
        assert character not in delivery.message_text([event])
        assert character not in delivery.subject_line([event])


def test_long_names_do_not_make_long_messages() -> None:
    event = OPENED._replace(alert=ALERT._replace(text="ü" * 100_000))
    assert len(delivery.message_text([event] * 20)) <= delivery.TEXT_MAX
    assert len(delivery.wecom_body([event] * 20)["text"]["content"].encode()) <= delivery.WECOM_BYTES_MAX


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
    assert delivery.service_error(answer) == refusal
