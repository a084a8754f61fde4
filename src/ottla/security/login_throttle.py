"""Limits on failing logins, per user and per address. Pure: the time is an argument.

Rules:
1. Logins of one user fail at most once per USER_INTERVAL_MS over all connections; addresses are served in turns. Logins
   from one address fail at most once per ADDRESS_INTERVAL_MS, and users are served in turns.
2. A password is checked at once, unless this user is failing from this address: then it waits for its turn. A correct
password therefore waits only for wrong ones of the same user from the same address.
3. A wrong password gets its response when its turn comes. Until then the user is failing from that address, even after
   the client has disconnected: closing the connection allows no further guess.
4. A correct password uses no turn of its user.
5. Memory is bounded by the waiting connections, and ABANDONED_MAX failures of disconnected clients. IPv6 addresses are
counted by their /64 network, in which a client can choose any address.
"""

from __future__ import annotations

import hashlib
import heapq
import ipaddress
from typing import Final

USER_INTERVAL_MS: Final = 105  # ten per second, with some tolerance for late responses
ADDRESS_INTERVAL_MS: Final = 11  # a hundred per second
ABANDONED_MAX: Final = 1_000
NAME_LENGTH_MAX: Final = 255
CLIENT_PREFIX_BITS: Final = 64

Pair = tuple[str, str]


class LoginAttempt:
    """A login that waits for its turn: for the check of its password, or for the response that it was wrong."""

    __slots__ = ("address", "has_failed", "user")

    def __init__(self, user: str | None, address: str, *, is_checked: bool) -> None:
        self.user = user  # None: it has no user name, and only its address is used
        self.address = address
        self.has_failed = is_checked

    @property
    def pair(self) -> Pair:
        return self.user or "", self.address

    def __repr__(self) -> str:
        return f"<LoginAttempt for {self.user!r} from {self.address}{' failed' if self.has_failed else ''}>"


class LoginThrottle:
    """The throttled logins of one broker."""

    def __init__(self) -> None:
        self._by_address = IntervalQueue(ADDRESS_INTERVAL_MS)
        self._by_user = IntervalQueue(USER_INTERVAL_MS)
        self._pending: dict[Pair, int] = {}  # waiting attempts, by user and address
        self._abandoned: dict[LoginAttempt, None] = {}  # oldest first

    def is_failing(self, user: str, address: str) -> bool:
        """Return whether the next password of this user from this address has to wait (rule 2)."""
        return (key_of_user(user), key_of_address(address)) in self._pending

    def add_attempt(self, user: str | None, address: str, now_ms: int, *, is_checked: bool) -> LoginAttempt:
        attempt = LoginAttempt(key_of_user(user) if user else None, key_of_address(address), is_checked=is_checked)
        self._pending[attempt.pair] = self._pending.get(attempt.pair, 0) + 1
        self._by_address.add(attempt, attempt.address, attempt.user or "", now_ms)
        return attempt

    def on_disconnect(self, attempt: LoginAttempt) -> LoginAttempt | None:
        """Handle a disconnected client. An unchecked attempt is removed; a failed one still uses its turn (rule 3).

        Returns the failure that is removed instead, if there are too many.
        """
        if not attempt.has_failed:
            self._forget(attempt)
            return None
        if attempt.pair in self._pending:
            self._abandoned[attempt] = None
        if len(self._abandoned) <= ABANDONED_MAX:
            return None
        oldest = next(iter(self._abandoned))
        self._forget(oldest)
        return oldest

    def take_due(self, now_ms: int) -> list[LoginAttempt]:
        """Return the attempts whose turn has come."""
        released = []
        for attempt in self._by_address.take_due(now_ms):
            if attempt.user is None:
                released.append(attempt)
            else:
                self._by_user.add(attempt, attempt.user, attempt.address, now_ms)
        released += self._by_user.take_due(now_ms)
        for attempt in released:
            self._remove_pending(attempt)
        return released

    def on_success(self, attempt: LoginAttempt, now_ms: int) -> None:
        """Record that the password of a released attempt was correct (rule 4)."""
        if attempt.user is not None:
            self._by_user.refund(attempt.user, now_ms)

    @property
    def next_ms(self) -> int | None:
        """Return when to call `take_due` again, or None."""
        times = [each for each in (self._by_address.next_ms, self._by_user.next_ms) if each is not None]
        return min(times, default=None)

    def _forget(self, attempt: LoginAttempt) -> None:
        was_waiting = self._by_address.remove(attempt, attempt.address, attempt.user or "")
        if not was_waiting and attempt.user is not None:
            was_waiting = self._by_user.remove(attempt, attempt.user, attempt.address)
        if was_waiting:
            self._remove_pending(attempt)

    def _remove_pending(self, attempt: LoginAttempt) -> None:
        self._abandoned.pop(attempt, None)
        left = self._pending[attempt.pair] - 1
        if left:
            self._pending[attempt.pair] = left
        else:
            del self._pending[attempt.pair]

    def __len__(self) -> int:
        return sum(self._pending.values())

    def __repr__(self) -> str:
        return f"<LoginThrottle {len(self)} waiting, {len(self._abandoned)} of them abandoned>"


class _QueueOwner:
    """The waiting attempts of one user or address, in turns."""

    __slots__ = ("free_ms", "waiting")

    def __init__(self, free_ms: int) -> None:
        self.free_ms = free_ms  # the earliest time of the next turn
        self.waiting: dict[str, dict[LoginAttempt, None]] = {}


class IntervalQueue:
    """One attempt of each owner per interval; those that share an owner are served in turns."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._owners: dict[str, _QueueOwner] = {}
        self._times: list[tuple[int, str]] = []  # a heap; entries may be outdated, and every owner has one that is not

    @property
    def next_ms(self) -> int | None:
        return self._times[0][0] if self._times else None

    def add(self, attempt: LoginAttempt, owner_name: str, sharing_key: str, now_ms: int) -> None:
        owner = self._owners.get(owner_name)
        if owner is None:
            owner = self._owners[owner_name] = _QueueOwner(now_ms)
            heapq.heappush(self._times, (now_ms, owner_name))
        owner.waiting.setdefault(sharing_key, {})[attempt] = None

    def remove(self, attempt: LoginAttempt, owner_name: str, sharer: str) -> bool:
        """Remove an attempt; returns whether it was waiting. The owner itself is removed when its time comes."""
        owner = self._owners.get(owner_name)
        line = owner.waiting.get(sharer, {}) if owner is not None else {}
        if owner is None or attempt not in line:
            return False
        del line[attempt]
        if not line:
            del owner.waiting[sharer]
        return True

    def take_due(self, now_ms: int) -> list[LoginAttempt]:
        """Return the next attempt of every owner whose time has come."""
        taken = []
        while self._times and self._times[0][0] <= now_ms:
            time_ms, name = heapq.heappop(self._times)
            owner = self._owners.get(name)
            if owner is None or owner.free_ms != time_ms:
                continue
            if not owner.waiting:
                del self._owners[name]
                continue
            sharer, line = next(iter(owner.waiting.items()))
            attempt = next(iter(line))
            del line[attempt], owner.waiting[sharer]
            if line:
                owner.waiting[sharer] = line  # after the others
            taken.append(attempt)
            self._move(name, owner, now_ms + self._interval_ms)
        return taken

    def refund(self, owner_name: str, now_ms: int) -> None:
        """Return the last turn of this owner, which was not used."""
        owner = self._owners.get(owner_name)
        if owner is not None and owner.free_ms > now_ms:
            self._move(owner_name, owner, max(now_ms, owner.free_ms - self._interval_ms))

    def _move(self, name: str, owner: _QueueOwner, free_ms: int) -> None:
        owner.free_ms = free_ms
        heapq.heappush(self._times, (free_ms, name))


def key_of_user(name: str) -> str:
    """Return the name, or a hash of a very long one."""
    return name if len(name) <= NAME_LENGTH_MAX else hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()


def key_of_address(host: str) -> str:
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    mapped = address.ipv4_mapped
    return str(mapped) if mapped is not None else str(ipaddress.ip_network((int(address), CLIENT_PREFIX_BITS), False))
