"""Who is told of alerts: webhooks and mail. For all clusters, and for those who are admin everywhere.

Addresses of webhooks, secrets and passwords are not shown again; who changes where they go types them again.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import msgspec

from ottla.console.alerts import RECEIVER, RECEIVERS_MAX
from ottla.console.api.alerts import NAME, TEXT_MAX
from ottla.console.api.call import Call
from ottla.console.api.errors import ApiError, bad_request, not_found
from ottla.console.clusters.cluster import MASKED
from ottla.monitor.alerts.delivery import DeliveryError, send
from ottla.monitor.alerts.entries import ChannelEntry, ConfigError, channel_of
from ottla.monitor.alerts.machine import Alert, Event, Step

URL_MAX = 2_000
PEOPLE_MAX = 50
TRIALS_MAX = 2  # at once: they take threads that everybody needs


class ReceiverRow(msgspec.Struct, frozen=True):
    """A receiver without its secrets, and the rules that tell it something."""

    name: str
    receiver: ChannelEntry
    rules: list[str]


class ReceiverList(msgspec.Struct, frozen=True):
    receivers: list[ReceiverRow]


async def list_receivers(call: Call) -> ReceiverList:
    return ReceiverList([_row(call, name) for name in sorted(call.console.alerts.receivers)])


async def put_receiver(call: Call) -> ReceiverRow:
    alerts, name = call.console.alerts, call.parameters["receiver"]
    old = alerts.receivers.get(name)
    entry = _unmasked(old, call.body)
    call.note(name, _masked(old) if old is not None else None, _masked(entry))
    _check(name, entry)
    if old is None and len(alerts.receivers) >= RECEIVERS_MAX:
        raise ApiError(409, "TOO_MANY", f"there are {RECEIVERS_MAX} receivers already")
    await alerts.put(RECEIVER, name, entry)
    return _row(call, name)


async def drop_receiver(call: Call) -> None:
    alerts, name = call.console.alerts, call.parameters["receiver"]
    entry = _known(call)
    users = _users(call, name)
    if users:
        raise ApiError(409, "IN_USE", f"these rules tell {name} something: {', '.join(users)}")
    call.note(name, _masked(entry))
    await alerts.drop(RECEIVER, name)


async def try_receiver(call: Call) -> None:
    """Send a message now, and say what became of it."""
    alerts, name = call.console.alerts, call.parameters["receiver"]
    channel = channel_of(name, msgspec.structs.replace(_known(call), allow_private=alerts.allows_private))
    if alerts.trials >= TRIALS_MAX:
        raise ApiError(429, "TOO_MANY", f"{TRIALS_MAX} messages are on their way: wait", {"Retry-After": "5"})
    call.note(name)
    now_ms = call.console.clock.now_ms()
    words = f"{call.caller.person} tries this receiver; nothing is wrong"
    event = Event(Step.OPENED, Alert("trial", "-", f"receiver {name}", words, now_ms, now_ms, True), now_ms, True)
    alerts.trials += 1
    try:
        await asyncio.to_thread(send, channel, [event], call.console.clock)
    except DeliveryError as problem:
        raise ApiError(502, "NOT_TAKEN", str(problem)) from None
    finally:
        alerts.trials -= 1


def _check(name: str, entry: ChannelEntry) -> None:
    if not NAME.fullmatch(name):
        raise bad_request("the name of a receiver has 1 to 100 characters, no / and no control characters")
    if entry.allow_private:
        raise bad_request("private addresses are allowed for all receivers, with --allow-private-addresses")
    texts = (entry.secret, entry.server, entry.from_, entry.username, entry.password, *entry.to)
    if len(entry.url) > URL_MAX or any(len(text) > TEXT_MAX for text in texts) or len(entry.to) > PEOPLE_MAX:
        raise bad_request(f"an address has {URL_MAX} characters at most, other texts {TEXT_MAX}; {PEOPLE_MAX} people")
    if not 0 <= entry.port < 1 << 16:
        raise bad_request("a port is a number up to 65535")
    if MASKED in (entry.secret, entry.password) or MASKED in entry.url:
        raise bad_request("write the address, the secret and the password again: they are kept for where they went")
    try:
        channel_of(name, entry)
    except ConfigError as problem:
        raise bad_request(str(problem).replace("channel", "receiver", 1)) from None


def _masked(entry: ChannelEntry) -> ChannelEntry:
    return msgspec.structs.replace(
        entry,
        url=_masked_url(entry.url),
        secret=MASKED if entry.secret else "",
        password=MASKED if entry.password else "",
    )


def _masked_url(url: str) -> str:
    """The path of a webhook is its key."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/{MASKED}" if url else ""


def _unmasked(old: ChannelEntry | None, typed: ChannelEntry) -> ChannelEntry:
    """What was left as it is shown is the old one, if it still goes to the same place."""
    if old is None or typed.type != old.type:
        return typed
    url = old.url if old.url and typed.url == _masked_url(old.url) else typed.url
    is_same = (url, typed.server, typed.port, typed.security) == (old.url, old.server, old.port, old.security)
    kept = {name: getattr(old, name) for name in ("secret", "password") if is_same and getattr(typed, name) == MASKED}
    return msgspec.structs.replace(typed, url=url, **kept)


def _known(call: Call) -> ChannelEntry:
    name = call.parameters["receiver"]
    if name not in call.console.alerts.receivers:
        raise not_found(f"there is no receiver {name}")
    return call.console.alerts.receivers[name]


def _users(call: Call, receiver: str) -> list[str]:
    return sorted(
        f"{name} ({cluster})" for (cluster, name), rule in call.console.alerts.rules.items() if receiver in rule.to
    )


def _row(call: Call, name: str) -> ReceiverRow:
    return ReceiverRow(name, _masked(call.console.alerts.receivers[name]), _users(call, name))
