"""Messages to real local servers, and addresses that must not be called."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.monitor.alerts.servers import HttpInbox, MailInbox, http_inbox, mail_inbox

from ottla.monitor.alerts.alert_states import Alert, Event, Transition
from ottla.monitor.alerts.delivery import DeliveryError, Mail, Webhook, check_url, resolve_allowed_address, send

ALERT = Alert("stuck", "default", "group grüne", "ERR", 1_700_000_000_000, 1_700_000_000_000, True)
EVENTS = [Event(Transition.OPENED, ALERT, 1_700_000_000_000, True)]


class StillClock:
    def now_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic_ms(self) -> int:
        return 0


@pytest.fixture
def inbox() -> Iterator[HttpInbox]:
    with http_inbox() as made:
        yield made


@pytest.fixture
def mails() -> Iterator[MailInbox]:
    with mail_inbox() as made:
        yield made


def hook(inbox: HttpInbox, kind: str = "slack", **details: Any) -> Webhook:
    return Webhook(kind, f"http://127.0.0.1:{inbox.port}/hook?token=secret", allow_private=True, **details)


@pytest.mark.parametrize("kind", ["slack", "dingtalk", "feishu", "wecom", "webhook"])
def test_each_service_gets_its_body(inbox: HttpInbox, kind: str) -> None:
    send(hook(inbox, kind), EVENTS, StillClock())
    (posted,) = inbox.posted
    assert posted.path == "/hook?token=secret"
    assert posted.headers["Content-Type"] == "application/json; charset=utf-8"
    assert posted.headers["Host"] == f"127.0.0.1:{inbox.port}"
    assert "grüne" in json.dumps(json.loads(posted.body), ensure_ascii=False)


def test_a_secret_signs(inbox: HttpInbox) -> None:
    send(hook(inbox, "dingtalk", secret="key"), EVENTS, StillClock())
    assert "&timestamp=1700000000000&sign=" in inbox.posted[0].path
    send(hook(inbox, "feishu", secret="key"), EVENTS, StillClock())
    assert json.loads(inbox.posted[1].body)["timestamp"] == "1700000000"


def test_refusals_are_reported_without_the_address(inbox: HttpInbox) -> None:
    inbox.status = 500
    with pytest.raises(DeliveryError, match=r"^127.0.0.1 answers 500$"):
        send(hook(inbox), EVENTS, StillClock())
    inbox.status, inbox.answer = 200, b'{"errcode": 300001, "errmsg": "token is not exist"}'
    with pytest.raises(DeliveryError, match="errcode 300001: token is not exist"):
        send(hook(inbox, "dingtalk"), EVENTS, StillClock())


def test_redirects_are_not_followed(inbox: HttpInbox) -> None:
    inbox.status, inbox.headers = 302, {"location": f"http://127.0.0.1:{inbox.port}/elsewhere"}
    with pytest.raises(DeliveryError, match="redirects are not followed"):
        send(hook(inbox), EVENTS, StillClock())
    assert len(inbox.posted) == 1


def test_private_addresses_need_permission(inbox: HttpInbox, mails: MailInbox) -> None:
    with pytest.raises(DeliveryError, match="private address"):
        send(hook(inbox)._replace(allow_private=False), EVENTS, StillClock())
    with pytest.raises(DeliveryError, match="private address"):
        send(Mail("127.0.0.1", mails.port, "a@b", ("c@d",), "none"), EVENTS, StillClock())
    assert (inbox.posted, mails.mails) == ([], [])


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "0.0.0.0",
        "100.64.0.1",
        "224.0.0.1",
        "::1",
        "::",
        "fe80::1%eth0",
        "fd00::1",
        "::ffff:127.0.0.1",
        "2002:7f00:1::",
    ],
)
def test_what_is_private(address: str) -> None:
    def resolve(*_: object, **__: object) -> list[Any]:
        return [(0, 0, 0, "", ("8.8.8.8", 443)), (0, 0, 0, "", (address, 443))]

    with pytest.raises(DeliveryError, match="private"):
        resolve_allowed_address("both.example", 443, allow_private=False, resolve=resolve)
    assert resolve_allowed_address("both.example", 443, allow_private=True, resolve=resolve)[1] == ("8.8.8.8", 443)


def test_a_public_address_is_fine_and_an_unknown_name_is_not() -> None:
    def resolve(*_: object, **__: object) -> list[Any]:
        return [(socket.AF_INET, 0, 0, "", ("8.8.8.8", 443))]

    def fail(*_: object, **__: object) -> list[Any]:
        raise socket.gaierror

    assert resolve_allowed_address("dns", 443, allow_private=False, resolve=resolve) == (
        socket.AF_INET,
        ("8.8.8.8", 443),
    )
    with pytest.raises(DeliveryError, match="cannot be resolved"):
        resolve_allowed_address("dns", 443, allow_private=False, resolve=fail)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hooks.slack.com/x",
        "file:///etc/passwd",
        "gopher://a",
        "ftp://a",
        "http://",
        "http://user:pass@host/",
        "http://host:99999/",
        "http://host/a b",
        "http://host/\r\nX: y",
        "http://[",
    ],
)
def test_addresses_that_no_webhook_has(url: str) -> None:
    with pytest.raises(DeliveryError) as refusal:
        check_url(url)
    assert "pass" not in str(refusal.value).replace("password", "")


def test_a_server_that_is_away(inbox: HttpInbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(DeliveryError, match="connection refused"):
        send(Webhook("slack", f"http://127.0.0.1:{port}/", allow_private=True), EVENTS, StillClock())


def test_a_self_signed_certificate_is_refused(inbox: HttpInbox) -> None:
    with pytest.raises(DeliveryError, match=r"^127.0.0.1: "):
        send(Webhook("slack", f"https://127.0.0.1:{inbox.port}/", allow_private=True), EVENTS, StillClock())


def test_mail(mails: MailInbox) -> None:
    mail = Mail("127.0.0.1", mails.port, "ottla@example.com", ("a@example.com", "b@example.com"), "none")
    send(mail._replace(allow_private=True), EVENTS, StillClock())
    ((sender, recipients, text),) = mails.mails
    assert (sender, recipients) == ("ottla@example.com", ["a@example.com", "b@example.com"])
    assert "Subject: [ottla] OPEN stuck: group =?utf-8?q?gr=C3=BCne?=" in text
    assert "Auto-Submitted: auto-generated" in text
    mails.refuses = True
    with pytest.raises(DeliveryError, match=r"^127.0.0.1: "):
        send(mail._replace(allow_private=True), EVENTS, StillClock())


def test_mail_without_the_encryption_that_was_asked_for_is_not_sent(mails: MailInbox) -> None:
    mail = Mail("127.0.0.1", mails.port, "a@b", ("c@d",), "starttls", "user", "password", allow_private=True)
    with pytest.raises(DeliveryError):
        send(mail, EVENTS, StillClock())
    assert mails.mails == []
