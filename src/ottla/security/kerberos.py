"""Credentials of Kerberos, of a broker that is asked in and of whoever asks: keytabs, tickets and their renewal.

Rules:
1. Nothing of this process is shared between logins: each has its keytab and its ticket cache by a GSSAPI credential
   store, so that several listeners have several keytabs. Only krb5.conf is the process's own, as in Java.
2. A keytab is read at every login: a new one counts without a restart.
3. A ticket is renewed when `sasl.kerberos.ticket.renew.window.factor` of its life is over. From a keytab a new one is
   got by whoever logs in next. In a ticket cache it is renewed by `kinit -R`, and by a thread, since nobody can renew
   what has ended. If that fails, the old ticket is used as long as it lives.
4. What the library says becomes KerberosError: one line with cause and cure.
5. All of it may wait for files or for a KDC: workers run it, never the event loop.
"""

from __future__ import annotations

import importlib
import itertools
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.base.log4j import java_options
from ottla.security.jaas import LoginModule
from ottla.security.kerberos_faults import OTHER, Fault, fault_of, sentence

ANY_PRINCIPAL: Final = "*"
KINIT: Final = "/usr/bin/kinit"
KINIT_SECONDS_MAX: Final = 30
TICKETS_MAX: Final = 100
MISSING_PACKAGE: Final = "GSSAPI needs the package gssapi: pip install 'ottla[kerberos]'"
KRB5_CONF_PROPERTY: Final = "java.security.krb5.conf"
_CACHES = itertools.count()


class KerberosError(Exception):
    """A login, or its preparation, that failed: one line; `fault` is what kind of trouble it is."""

    def __init__(self, text: str, fault: Fault = OTHER) -> None:
        super().__init__(text)
        self.fault = fault


@cache
def library() -> Any:
    """The module gssapi, which an extra brings."""
    use_java_krb5_conf()
    try:
        return importlib.import_module("gssapi")
    except (ImportError, OSError) as problem:
        raise KerberosError(f"{MISSING_PACKAGE} ({problem})") from None


def new_context(**words: Any) -> Any:
    """A context whose errors are raised by the step that meets them, not by the one after it."""
    context = library().SecurityContext(**words)
    context.__DEFER_STEP_ERRORS__ = False
    return context


def use_java_krb5_conf() -> None:
    """`-Djava.security.krb5.conf=FILE` in KAFKA_OPTS counts as it does in Java, unless KRB5_CONFIG names another."""
    path = java_options(os.environ.get("KAFKA_OPTS", "")).get(KRB5_CONF_PROPERTY)
    if path:
        os.environ.setdefault("KRB5_CONFIG", path)


def told(problem: Any, *, is_acceptor: bool) -> KerberosError:
    """An exception of the library as a line for people."""
    fault = fault_of(problem.min_code, is_acceptor=is_acceptor)
    words = problem.get_all_statuses(problem.min_code, False) or [""]
    return KerberosError(sentence(fault, " ".join(words)), fault)


def default_realm() -> str:
    """The realm of krb5.conf that names without one belong to; empty if there is none, as in Kafka."""
    gssapi = library()
    try:
        name = gssapi.Name("anybody", gssapi.NameType.kerberos_principal).canonicalize(gssapi.MechType.kerberos)
    except gssapi.exceptions.GSSError:
        return ""
    return str(name).rpartition("@")[2]


class Krb5Options(NamedTuple):
    """What a Krb5LoginModule of a JAAS section says."""

    principal: str | None
    keytab: str | None  # an absolute path; None for the one of krb5.conf
    uses_keytab: bool
    uses_ticket_cache: bool
    ticket_cache: str | None
    service_name: str | None

    @classmethod
    def of(cls, module: LoginModule) -> Krb5Options:
        """Raises KerberosError if another mechanism's module is there."""
        if not module.short_name.startswith("Krb5LoginModule"):
            raise KerberosError(f"GSSAPI needs com.sun.security.auth.module.Krb5LoginModule, not {module.name}")
        options = module.options
        keytab = options.get("keyTab", options.get("keytab", "")).removeprefix("FILE:")
        return cls(
            options.get("principal") or None,
            str(Path(keytab).absolute()) if keytab else None,
            module.is_true("useKeyTab"),
            module.is_true("useTicketCache"),
            options.get("ticketCache") or None,
            options.get("serviceName") or None,
        )

    @classmethod
    def of_properties(cls, properties: Mapping[str, str]) -> Krb5Options:
        """Without JAAS: librdkafka's names of a keytab and its principal, else whatever kinit has got."""
        keytab = properties.get("sasl.kerberos.keytab", "").strip()
        principal = properties.get("sasl.kerberos.principal", "").strip() or None
        path = str(Path(keytab).absolute()) if keytab else None
        cache = properties.get("sasl.kerberos.ticket.cache", "").strip() or None
        return cls(principal if keytab else None, path, bool(keytab), not keytab, cache, None)


def service_name(options: Krb5Options | None, setting: str | None) -> str | None:
    """The name of the brokers' service, which the JAAS section or `sasl.kerberos.service.name` may tell."""
    in_section = options.service_name if options is not None else None
    if in_section and setting and in_section != setting:
        raise KerberosError(
            f"Conflicting serviceName values found in JAAS and Kafka configs value in JAAS file {in_section}, "
            f"value in Kafka config {setting}"
        )
    return in_section or setting or None


def acceptor_credentials(options: Krb5Options, service: str | None) -> Any:
    """The keys of a broker. Raises KerberosError if its keytab has none of its principal."""
    gssapi = library()
    name = None
    if options.principal not in (None, ANY_PRINCIPAL):
        name = gssapi.Name(options.principal, gssapi.NameType.kerberos_principal)
    elif service is not None:
        name = gssapi.Name(service, gssapi.NameType.hostbased_service)
    try:
        return gssapi.Credentials(
            name=name, usage="accept", mechs=[gssapi.MechType.kerberos], store=_keytab_store(b"keytab", options.keytab)
        )
    except gssapi.exceptions.GSSError as problem:
        raise told(problem, is_acceptor=True) from None


class RenewalTimes(NamedTuple):
    """When a ticket is renewed; the settings `sasl.kerberos.*` of that name.  Pure."""

    window_factor: float = 0.8
    jitter: float = 0.05
    min_before_relogin_ms: int = 60_000

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> RenewalTimes:
        """Of settings as they are written. Raises KerberosError at what is no number."""
        try:
            return cls(
                float(properties.get("sasl.kerberos.ticket.renew.window.factor", 0.8)),
                float(properties.get("sasl.kerberos.ticket.renew.jitter", 0.05)),
                int(properties.get("sasl.kerberos.min.time.before.relogin", 60_000)),
            )
        except ValueError as problem:
            raise KerberosError(f"one of the sasl.kerberos.* properties is no number: {problem}") from None

    def next_ms(self, now_ms: int, lifetime_ms: int, share: float) -> int:
        """When a ticket that is good for `lifetime_ms` more is renewed; `share` is a random number from 0 to 1.

        Never in less than the shortest time between two logins, and a ticket that ends before that is used to its end.
        """
        wanted_ms = int(lifetime_ms * (self.window_factor + self.jitter * share))
        return now_ms + min(lifetime_ms, max(wanted_ms, self.min_before_relogin_ms))


class ClientTickets:
    """The tickets of one client, a tool or a broker: got at the first login, renewed in time, for all connections."""

    def __init__(
        self,
        options: Krb5Options,
        times: RenewalTimes = RenewalTimes(),  # noqa: B008 (it never changes)
        kinit: str = KINIT,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        if not options.uses_keytab and not options.uses_ticket_cache:
            raise KerberosError(
                "the login module neither uses a keytab nor a ticket cache: set useKeyTab=true or useTicketCache=true"
            )
        if options.uses_keytab and options.principal is None and not options.uses_ticket_cache:
            raise KerberosError("a login with a keytab needs principal=NAME@REALM in the JAAS settings")
        self.options = options
        self.times = times
        self.kinit = kinit
        self.now_ms = now_ms
        self._lock = threading.Lock()
        self._credentials: Any = None
        self._renew_ms = 0
        self._end_ms = 0

    def credentials(self) -> Any:
        """Good ones: those at hand, or new ones."""
        with self._lock:
            now_ms = self.now_ms()
            if self._credentials is None or now_ms >= self._renew_ms:
                self._renew(now_ms)
            return self._credentials

    def _renew(self, now_ms: int) -> None:
        try:
            found = self._acquire(is_renewal=self._credentials is not None)
        except KerberosError:
            if self._credentials is None or now_ms >= self._end_ms:
                self._credentials = None
                raise
            self._renew_ms = min(self._end_ms, now_ms + self.times.min_before_relogin_ms)
            return
        lifetime_ms = 1000 * int(found.lifetime or 0)
        self._credentials = found
        self._end_ms = now_ms + lifetime_ms
        self._renew_ms = self.times.next_ms(now_ms, lifetime_ms, random.random())  # noqa: S311 (spreads load)
        if self.options.uses_ticket_cache and self._renew_ms < self._end_ms:
            timer = threading.Timer((self._renew_ms - now_ms) / 1000, self._renew_in_time)
            timer.daemon = True
            timer.start()

    def _renew_in_time(self) -> None:
        with suppress(KerberosError):  # told to whoever logs in
            self.credentials()

    def _acquire(self, is_renewal: bool) -> Any:
        if self.options.uses_ticket_cache:
            try:
                if is_renewal:
                    self._renew_cache()
                return self._from_cache()
            except KerberosError:
                if not self.options.uses_keytab:
                    raise
        return self._from_keytab()

    def _from_keytab(self) -> Any:
        """A new ticket, in a cache in memory that is ours alone."""
        acceptor_credentials(self.options, None)  # what is wrong with the keytab itself is told best by this
        store = _keytab_store(b"client_keytab", self.options.keytab) or {}
        return self._initiator({**store, b"ccache": b"MEMORY:ottla-%d" % next(_CACHES)})

    def _from_cache(self) -> Any:
        path = self.options.ticket_cache
        return self._initiator({b"ccache": path.encode()} if path else None)

    def _initiator(self, store: dict[bytes, bytes] | None) -> Any:
        gssapi = library()
        principal = self.options.principal
        try:
            name = None if principal is None else gssapi.Name(principal, gssapi.NameType.kerberos_principal)
            found = gssapi.Credentials(name=name, usage="initiate", mechs=[gssapi.MechType.kerberos], store=store)
            _ = found.lifetime  # an expired one says so here
        except gssapi.exceptions.ExpiredCredentialsError:
            raise KerberosError(*_expired()) from None
        except gssapi.exceptions.GSSError as problem:
            raise told(problem, is_acceptor=False) from None
        return found

    def _renew_cache(self) -> None:
        """As Kafka does it. A cache that somebody else has renewed meanwhile is as good, so a failure says nothing."""
        cache = ["-c", self.options.ticket_cache] if self.options.ticket_cache else []
        try:
            subprocess.run(  # noqa: S603 (the program that the settings name)
                [self.kinit, "-R", *cache],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=KINIT_SECONDS_MAX,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return

    def __repr__(self) -> str:
        return f"<ClientTickets {self.options.principal or 'of the ticket cache'}>"


@lru_cache(maxsize=TICKETS_MAX)
def tickets_of(options: Krb5Options, times: RenewalTimes, kinit: str) -> ClientTickets:
    """One for all clients of this process that log in alike: they share their tickets."""
    return ClientTickets(options, times, kinit)


def _keytab_store(key: bytes, path: str | None) -> dict[bytes, bytes] | None:
    return None if path is None else {key: os.fsencode(path)}


def _expired() -> tuple[str, Fault]:
    fault = fault_of(_TICKET_EXPIRED, is_acceptor=False)
    return sentence(fault, ""), fault


_TICKET_EXPIRED: Final = -1765328352
