"""Who is at the other end of a connection, and who waits there. Compiled with mypyc where possible."""

from __future__ import annotations

from typing import Any, Protocol

from ottla.base.security import ANONYMOUS


class ClientFacts:
    """What is known about who is at the other end."""

    def __init__(self, host: str, port: int, listener_name: str) -> None:
        self.host, self.port, self.listener_name, self.client_id = host, port, listener_name, ""
        self.principal, self.is_delegated = ANONYMOUS, False  # delegated: it has logged in with a delegation token
        self.has_logged_in = True  # a listener that asks for a login says False until there was one
        self.sends_tokens = False  # its frames are bare tokens of a login (SaslHandshake v0)
        self.login: Any = None  # how far that is, on such a listener; not ours to look into
        self.shares: Any = None  # which quotas it falls under, once that is known; not ours to look into
        self.commits: Any = None  # what its offset commits have in common; not ours to look into
        self.held_by: Any = None  # the quota that it was held up by last
        self.software_name = self.software_version = "unknown"  # until the client tells (KIP-511); it proves nothing


class Cancellable(Protocol):
    """A request that waits for something and would wait in vain once its connection is closed."""

    def cancel(self) -> None: ...


class Probe(Protocol):
    """Somebody who wants to know how long one reply takes to be sent."""

    def on_sending(self) -> None: ...

    def on_sent(self) -> None: ...
