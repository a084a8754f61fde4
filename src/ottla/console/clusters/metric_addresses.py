"""Where the brokers of a cluster tell their metrics: one pattern for all of them, or an address for each. Pure.

`http://{host}:9404` is ottla's own endpoint at every broker, `http://{host}:8778/jolokia` is Jolokia's agent;
`1=http://10.0.0.1:9404, 2=…` names some brokers one by one, and goes before a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, urlsplit

HOST, ID = "{host}", "{id}"
BROKERS_MAX = 1_000
TEXT_MAX = 100_000
_BROKER = re.compile(r"(\d{1,10})=(.*)")
EXAMPLE = f"http://{HOST}:9404"


class BadAddressError(ValueError):
    """What was typed is no address; says why."""


class MetricAddresses(NamedTuple):
    """Checked by `parse_addresses`; `login` is `name:password`, or empty."""

    text: str = ""
    login: str = ""
    pattern: str | None = None
    by_broker: Mapping[int, str] = {}
    is_trusted: bool = False  # the command line named it: also addresses inside, whoever they belong to

    def of(self, broker: int, host: str) -> str | None:
        """The address of a broker, without the login; None: nobody has told it."""
        found = self.by_broker.get(broker, self.pattern)
        shown = f"[{host}]" if ":" in host else host
        return None if found is None else found.replace(HOST, shown).replace(ID, str(broker))

    def with_login(self, address: str) -> str:
        scheme, _, place = address.partition("://")
        return f"{scheme}://{quote(self.login, safe=':')}@{place}" if self.login else address


def parse_addresses(text: str, login: str = "", *, is_trusted: bool = False) -> MetricAddresses:
    """Addresses apart by commas or white space. Raises BadAddressError."""
    if len(text) > TEXT_MAX:
        raise BadAddressError(f"addresses of metrics have {TEXT_MAX} letters at most")
    pattern, by_broker = None, {}
    for word in re.split(r"[,\s]+", text.strip()):
        if not word:
            continue
        named = _BROKER.fullmatch(word)
        if named is not None:
            by_broker[int(named[1])] = _checked(named[2])
        elif pattern is not None:
            raise BadAddressError(f"one pattern for all brokers, or an address for each: 1={word}")
        else:
            pattern = _checked(word)
    if len(by_broker) > BROKERS_MAX:
        raise BadAddressError(f"{BROKERS_MAX} brokers at most")
    if login and ":" not in login:
        raise BadAddressError("a login is NAME:PASSWORD")
    return MetricAddresses(text.strip(), login, pattern, by_broker, is_trusted)


def _checked(address: str) -> str:
    words = f"{address} is no address of metrics: write {EXAMPLE}, or http://{HOST}:8778/jolokia"
    if not address.isprintable():
        raise BadAddressError("an address of metrics has printable letters")
    try:
        parts = urlsplit(address.replace(HOST, "host").replace(ID, "1"))
        parts.port  # noqa: B018 (raises for what is none)
    except ValueError:
        raise BadAddressError(words) from None
    if "@" in parts.netloc:  # it would be shown wherever the address is
        raise BadAddressError("the login stands in its own field, not in the address")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise BadAddressError(words)
    return address
