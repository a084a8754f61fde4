"""Receivers of alerts: webhooks and mail, for all clusters. Only admins of all clusters may use this API.

Webhook URLs, secrets and passwords are masked in answers; to change the target, they must be entered again.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import msgspec

from ottla.console.alerts import RECEIVER, RECEIVERS_MAX
from ottla.console.api.alerts import NAME, TEXT_MAX
from ottla.console.api.call import Call
from ottla.console.api.errors import ApiError, bad_request, not_found
from ottla.console.clusters.address_checks import UnusableAddressError, check_host
from ottla.console.clusters.cluster import MASK
from ottla.monitor.alerts.alert_states import Alert, Event, Transition
from ottla.monitor.alerts.delivery import DeliveryError, Webhook, send
from ottla.monitor.alerts.rule_entries import ChannelEntry, ConfigError, channel_of

URL_MAX = 2_000
RECIPIENTS_MAX = 50


class ReceiverRow(msgspec.Struct, frozen=True):
    """A receiver with masked secrets, and the rules that use it."""

    name: str
    receiver: ChannelEntry
    rules: list[str]


class ReceiverList(msgspec.Struct, frozen=True):
    receivers: list[ReceiverRow]


async def list_receivers(call: Call) -> ReceiverList:
    return ReceiverList([_receiver_row(call, name) for name in sorted(call.console.alerts.receivers)])


async def put_receiver(call: Call) -> ReceiverRow:
    alerts, name = call.console.alerts, call.parameters["receiver"]
    old = alerts.receivers.get(name)
    entry = _unmasked(old, call.body)
    call.audit(name, _masked(old) if old is not None else None, _masked(entry))
    _check_receiver(name, entry, allows_private=alerts.allows_private)
    if old is None and len(alerts.receivers) >= RECEIVERS_MAX:
        raise ApiError(409, "TOO_MANY", f"there are {RECEIVERS_MAX} receivers already")
    await alerts.put(RECEIVER, name, entry)
    return _receiver_row(call, name)


async def drop_receiver(call: Call) -> None:
    alerts, name = call.console.alerts, call.parameters["receiver"]
    entry = _receiver_of(call)
    users = _rules_using(call, name)
    if users:
        raise ApiError(409, "IN_USE", f"these rules use {name}: {', '.join(users)}")
    call.audit(name, _masked(entry))
    await alerts.delete(RECEIVER, name)


async def test_receiver(call: Call) -> None:
    """Send a test message. Raises ApiError if it is not delivered."""
    alerts, name = call.console.alerts, call.parameters["receiver"]
    channel = channel_of(name, msgspec.structs.replace(_receiver_of(call), allow_private=alerts.allows_private))
    alerts.tests.check()
    call.audit(name)
    now_ms = call.console.clock.now_ms()
    words = f"test message from {call.caller.person}; there is no alert"
    event = Event(Transition.OPENED, Alert("trial", "-", f"receiver {name}", words, now_ms, now_ms, True), now_ms, True)
    with alerts.tests.take():
        try:
            await asyncio.to_thread(send, channel, [event], call.console.clock)
        except DeliveryError as problem:
            raise ApiError(502, "NOT_TAKEN", str(problem)) from None


def _check_receiver(name: str, entry: ChannelEntry, *, allows_private: bool) -> None:
    if not NAME.fullmatch(name):
        raise bad_request("the name of a receiver must have 1 to 100 characters, without / and control characters")
    if entry.allow_private:
        raise bad_request("use --allow-private-addresses of the console to allow private addresses for all receivers")
    texts = (entry.secret, entry.server, entry.from_, entry.username, entry.password, *entry.to)
    if len(entry.url) > URL_MAX or any(len(text) > TEXT_MAX for text in texts) or len(entry.to) > RECIPIENTS_MAX:
        raise bad_request(
            f"an address has at most {URL_MAX} characters, other texts {TEXT_MAX}; at most {RECIPIENTS_MAX} recipients"
        )
    if not 0 <= entry.port < 1 << 16:
        raise bad_request("a port must be a number up to 65535")
    if MASK in (entry.secret, entry.password) or MASK in entry.url:
        raise bad_request(
            "enter the address, the secret and the password again: they are stored for their old target only"
        )
    try:
        channel = channel_of(name, entry)
        host = urlsplit(channel.url).hostname if isinstance(channel, Webhook) else channel.server
        check_host(host or "", host or "", allows_private=allows_private, allows_link_local=allows_private)
    except ConfigError as problem:
        raise bad_request(str(problem).replace("channel", "receiver", 1)) from None
    except UnusableAddressError as problem:
        raise bad_request("{0} can never work: {1}", problem.address, problem.reason) from None


def _masked(entry: ChannelEntry) -> ChannelEntry:
    return msgspec.structs.replace(
        entry,
        url=_masked_url(entry.url),
        secret=MASK if entry.secret else "",
        password=MASK if entry.password else "",
    )


def _masked_url(url: str) -> str:
    """The path of a webhook URL is a secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/{MASK}" if url else ""


def _unmasked(old: ChannelEntry | None, typed: ChannelEntry) -> ChannelEntry:
    """Restore masked secrets from the old entry, if the target is unchanged."""
    if old is None or typed.type != old.type:
        return typed
    url = old.url if old.url and typed.url == _masked_url(old.url) else typed.url
    is_same = (url, typed.server, typed.port, typed.security) == (old.url, old.server, old.port, old.security)
    kept = {name: getattr(old, name) for name in ("secret", "password") if is_same and getattr(typed, name) == MASK}
    return msgspec.structs.replace(typed, url=url, **kept)


def _receiver_of(call: Call) -> ChannelEntry:
    name = call.parameters["receiver"]
    if name not in call.console.alerts.receivers:
        raise not_found(f"there is no receiver {name}")
    return call.console.alerts.receivers[name]


def _rules_using(call: Call, receiver: str) -> list[str]:
    return sorted(
        f"{name} ({cluster})" for (cluster, name), rule in call.console.alerts.rules.items() if receiver in rule.to
    )


def _receiver_row(call: Call, name: str) -> ReceiverRow:
    return ReceiverRow(name, _masked(call.console.alerts.receivers[name]), _rules_using(call, name))
