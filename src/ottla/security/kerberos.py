"""Kerberos credentials of brokers and clients: keytabs, tickets and their renewal.

Rules:
1. Logins share nothing in the process: each has its keytab and ticket cache through a GSSAPI credential store, so that
   listeners may have different keytabs. Only krb5.conf applies to the whole process, as in Java.
2. A keytab is read at every login: a new one takes effect without a restart.
3. A ticket is renewed after the share `sasl.kerberos.ticket.renew.window.factor` of its lifetime. With a keytab the
   next login gets a new one. In a ticket cache a thread renews it with `kinit -R`, because an expired ticket cannot be
   renewed. If renewal fails, the old ticket is used until it expires.
4. Errors of the library become KerberosError: one line with cause and fix.
5. Everything may block on files or on a KDC: worker threads run it, never the event loop.
"""

from __future__ import annotations

import errno
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

from ottla.base.environment import java_options
from ottla.security.jaas import AppConfigurationEntry

ERROR_TABLE: Final = -1765328384  # base of the Kerberos error numbers in MIT's library
NO_SUCH_KEY_IN_KEYTAB: Final = 39756033  # from its GSSAPI layer

KEYTAB_CURE: Final = "check it with klist -kte FILE, and export it again: ktadd -k FILE PRINCIPAL"
CLOCK_CURE: Final = "set both clocks by NTP: Kerberos allows 5 minutes"
SERVICE_CURE: Final = (
    "sasl.kerberos.service.name of the client must be the first part of the broker's principal, and the host name that "
    "the client connects to its second part"
)


class KerberosFault(NamedTuple):
    """A cause of failed Kerberos logins and its fix. `name` is its short name in metrics and reports."""

    name: str
    cause: str
    cure: str


CLOCK: Final = KerberosFault("clock", "the clocks of the two machines differ too much", CLOCK_CURE)
EXPIRED: Final = KerberosFault("expired", "the ticket has expired", "get a new one: kinit, or a login with a keytab")
SERVICE: Final = KerberosFault("service name", "Kerberos knows no such service", SERVICE_CURE)
OTHER_SERVICE: Final = KerberosFault(
    "service name", "the ticket is for another service than this broker is", SERVICE_CURE
)
KVNO: Final = KerberosFault(
    "kvno",
    "the key was changed in Kerberos, and the broker's keytab has only older ones",
    "export the keytab again (ktadd -norandkey keeps the key); it is read at the next login, without a restart",
)
STALE_TICKET: Final = KerberosFault(
    "kvno",
    "the ticket was made with another key than the keytab has",
    "if the keytab is new, get a new ticket (kinit); if not, export the keytab again: " + KEYTAB_CURE,
)
PASSWORD: Final = KerberosFault(
    "password", "the password or the key in the keytab is not the one that Kerberos has", KEYTAB_CURE
)
NO_KEYTAB: Final = KerberosFault(
    "keytab", "the keytab cannot be read", "check keyTab in the JAAS settings, and that this user may read the file"
)
BAD_KEYTAB: Final = KerberosFault("keytab", "the file is not a keytab", KEYTAB_CURE)
NOT_IN_KEYTAB: Final = KerberosFault(
    "keytab",
    "the keytab has no key of this principal",
    "compare principal in the JAAS settings with klist -kt FILE: host name, upper and lower case, realm",
)
UNKNOWN_CLIENT: Final = KerberosFault(
    "principal", "Kerberos knows no such principal", "compare principal in the JAAS settings with the KDC's list"
)
NO_TICKET: Final = KerberosFault(
    "ticket", "there is no ticket", "get one (kinit; klist shows it), or use a keytab: useKeyTab=true keyTab=FILE"
)
NO_KDC: Final = KerberosFault(
    "kdc",
    "no KDC of the realm answers",
    "check kdc of the realm in krb5.conf (KRB5_CONFIG, or KAFKA_OPTS=-Djava.security.krb5.conf=FILE), and the network",
)
NO_REALM: Final = KerberosFault(
    "realm",
    "krb5.conf does not define the realm",
    "name the realm and its kdc there (KRB5_CONFIG, or KAFKA_OPTS=-Djava.security.krb5.conf=FILE)",
)
CIPHERS: Final = KerberosFault(
    "encryption",
    "both sides have no encryption type in common",
    "make new keys with AES (ktadd), and compare permitted_enctypes in krb5.conf with klist -kte FILE",
)
REPLAY: Final = KerberosFault(
    "replay", "the same login was sent twice", "unless this is an attack, the client may retry"
)
NO_REPLAY_CACHE: Final = KerberosFault(
    "replay cache",
    "the replay cache cannot be written",
    "make the folder of temporary files (KRB5RCNAME, else /var/tmp) writable for the broker",
)
LOCKED: Final = KerberosFault("principal", "the principal is locked or has expired", "ask the administrator of the KDC")
OTHER: Final = KerberosFault("other", "Kerberos refuses", "KRB5_TRACE=/dev/stderr shows each step of the library")

_FAULTS_BY_ERROR: Final = {
    6: UNKNOWN_CLIENT,
    7: SERVICE,
    14: CIPHERS,
    1: LOCKED,
    18: LOCKED,
    23: LOCKED,
    24: PASSWORD,
    32: EXPIRED,
    33: CLOCK,
    34: REPLAY,
    35: OTHER_SERVICE,
    37: CLOCK,
    44: KVNO,
    45: NOT_IN_KEYTAB,
    135: NO_REALM,
    136: NO_REALM,
    141: NO_TICKET,
    144: OTHER_SERVICE,
    154: NO_REALM,
    156: NO_KDC,
    181: NOT_IN_KEYTAB,
    188: CIPHERS,
    195: NO_TICKET,
    213: BAD_KEYTAB,
    220: NO_KDC,
    224: NO_REALM,
    230: KVNO,
    237: CIPHERS,
    **dict.fromkeys(range(164, 173), NO_REPLAY_CACHE),
}
_FAULTS_BY_ERRNO: Final = {errno.ENOENT: NO_KEYTAB, errno.EACCES: NO_KEYTAB, NO_SUCH_KEY_IN_KEYTAB: NOT_IN_KEYTAB}
_INTEGRITY: Final = 31


def fault_of(minor_code: int, *, is_acceptor: bool) -> KerberosFault:
    """Return the fault of an error number of the library, for the broker (acceptor) or for the client."""
    signed = minor_code - (1 << 32) if minor_code >= 1 << 31 else minor_code
    number = signed - ERROR_TABLE
    if number == _INTEGRITY:  # cannot decrypt: for the broker the ticket, for the client the reply of the KDC
        return STALE_TICKET if is_acceptor else PASSWORD
    return _FAULTS_BY_ERRNO.get(signed) or _FAULTS_BY_ERROR.get(number, OTHER)


def fault_message(fault: KerberosFault, words: str) -> str:
    """Return one line with the cause, the library's message and the fix."""
    said = f" ({words})" if words and not words.startswith("Unknown error") else ""
    return f"{fault.cause}{said}: {fault.cure}"


ANY_PRINCIPAL: Final = "*"
KINIT: Final = "/usr/bin/kinit"
KINIT_SECONDS_MAX: Final = 30
TICKETS_MAX: Final = 100
MISSING_PACKAGE: Final = "GSSAPI needs the package gssapi: pip install 'ottla[kerberos]'"
KRB5_CONF_PROPERTY: Final = "java.security.krb5.conf"
_CACHES = itertools.count()


class KerberosError(Exception):
    """A failed login, or its preparation, in one line; `fault` is its cause."""

    def __init__(self, text: str, fault: KerberosFault = OTHER) -> None:
        super().__init__(text)
        self.fault = fault


@cache
def load_gssapi() -> Any:
    """Return the module gssapi, from the extra `kerberos`."""
    use_java_krb5_conf()
    try:
        return importlib.import_module("gssapi")
    except (ImportError, OSError) as problem:
        raise KerberosError(f"{MISSING_PACKAGE} ({problem})") from None


def new_context(**words: Any) -> Any:
    """Return a context that raises errors in the step that causes them, not in the next one."""
    context = load_gssapi().SecurityContext(**words)
    context.__DEFER_STEP_ERRORS__ = False
    return context


def use_java_krb5_conf() -> None:
    """Apply `-Djava.security.krb5.conf=FILE` of KAFKA_OPTS as in Java, unless KRB5_CONFIG is set."""
    path = java_options(os.environ.get("KAFKA_OPTS", "")).get(KRB5_CONF_PROPERTY)
    if path:
        os.environ.setdefault("KRB5_CONFIG", path)


def kerberos_error(problem: Any, *, is_acceptor: bool) -> KerberosError:
    """Return an exception of the library as one line."""
    fault = fault_of(problem.min_code, is_acceptor=is_acceptor)
    words = problem.get_all_statuses(problem.min_code, False) or [""]
    return KerberosError(fault_message(fault, " ".join(words)), fault)


def default_realm() -> str:
    """Return the default realm of krb5.conf; empty if there is none, as in Kafka."""
    gssapi = load_gssapi()
    try:
        name = gssapi.Name("user", gssapi.NameType.kerberos_principal).canonicalize(gssapi.MechType.kerberos)
    except gssapi.exceptions.GSSError:
        return ""
    return str(name).rpartition("@")[2]


class Krb5Options(NamedTuple):
    """The options of a Krb5LoginModule."""

    principal: str | None
    keytab: str | None  # an absolute path; None for the default of krb5.conf
    uses_keytab: bool
    uses_ticket_cache: bool
    ticket_cache: str | None
    service_name: str | None

    @classmethod
    def of(cls, module: AppConfigurationEntry) -> Krb5Options:
        """Return the options of a login module. Raises KerberosError for another mechanism."""
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
        """Return the options without JAAS:

        librdkafka's properties for a keytab and its principal, otherwise kinit's tickets.
        """
        keytab = properties.get("sasl.kerberos.keytab", "").strip()
        principal = properties.get("sasl.kerberos.principal", "").strip() or None
        path = str(Path(keytab).absolute()) if keytab else None
        cache = properties.get("sasl.kerberos.ticket.cache", "").strip() or None
        return cls(principal if keytab else None, path, bool(keytab), not keytab, cache, None)


def service_name(options: Krb5Options | None, setting: str | None) -> str | None:
    """Return the service name of the brokers, from the JAAS section or from `sasl.kerberos.service.name`."""
    in_section = options.service_name if options is not None else None
    if in_section and setting and in_section != setting:
        raise KerberosError(
            f"Conflicting serviceName values found in JAAS and Kafka configs value in JAAS file {in_section}, "
            f"value in Kafka config {setting}"
        )
    return in_section or setting or None


def acceptor_credentials(options: Krb5Options, service: str | None) -> Any:
    """Return the keys of a broker. Raises KerberosError if its keytab has none for its principal."""
    gssapi = load_gssapi()
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
        raise kerberos_error(problem, is_acceptor=True) from None


class RenewalTimes(NamedTuple):
    """The renewal times of tickets, from the settings `sasl.kerberos.*`. Pure."""

    window_factor: float = 0.8
    jitter: float = 0.05
    min_before_relogin_ms: int = 60_000

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> RenewalTimes:
        """Return the times from the text of settings. Raises KerberosError for an invalid number."""
        try:
            return cls(
                float(properties.get("sasl.kerberos.ticket.renew.window.factor", 0.8)),
                float(properties.get("sasl.kerberos.ticket.renew.jitter", 0.05)),
                int(properties.get("sasl.kerberos.min.time.before.relogin", 60_000)),
            )
        except ValueError as problem:
            raise KerberosError(f"one of the sasl.kerberos.* properties is not a number: {problem}") from None

    def next_ms(self, now_ms: int, lifetime_ms: int, share: float) -> int:
        """Return the renewal time of a ticket with this remaining lifetime; `share` is a random number from 0 to 1.

        Never earlier than the minimum time between two logins; a ticket that ends before that is used to its end.
        """
        wanted_ms = int(lifetime_ms * (self.window_factor + self.jitter * share))
        return now_ms + min(lifetime_ms, max(wanted_ms, self.min_before_relogin_ms))


class TicketCache:
    """The tickets of one client, tool or broker: acquired at the first login, renewed in time, shared by all
    connections."""

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
        self._expires_ms = 0

    def credentials(self) -> Any:
        """Return valid credentials: the current ones, or new ones."""
        with self._lock:
            now_ms = self.now_ms()
            if self._credentials is None or now_ms >= self._renew_ms:
                self._renew(now_ms)
            return self._credentials

    def _renew(self, now_ms: int) -> None:
        try:
            found = self._acquire(is_renewal=self._credentials is not None)
        except KerberosError:
            if self._credentials is None or now_ms >= self._expires_ms:
                self._credentials = None
                raise
            self._renew_ms = min(self._expires_ms, now_ms + self.times.min_before_relogin_ms)
            return
        lifetime_ms = 1000 * int(found.lifetime or 0)
        self._credentials = found
        self._expires_ms = now_ms + lifetime_ms
        self._renew_ms = self.times.next_ms(now_ms, lifetime_ms, random.random())  # noqa: S311 (spreads load)
        if self.options.uses_ticket_cache and self._renew_ms < self._expires_ms:
            timer = threading.Timer((self._renew_ms - now_ms) / 1000, self._renew_on_timer)
            timer.daemon = True
            timer.start()

    def _renew_on_timer(self) -> None:
        with suppress(KerberosError):  # the next login reports it
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
        """Return a new ticket, in a private cache in memory."""
        acceptor_credentials(self.options, None)  # this call has the best error for an invalid keytab
        store = _keytab_store(b"client_keytab", self.options.keytab) or {}
        return self._initiator({**store, b"ccache": b"MEMORY:ottla-%d" % next(_CACHES)})

    def _from_cache(self) -> Any:
        path = self.options.ticket_cache
        return self._initiator({b"ccache": path.encode()} if path else None)

    def _initiator(self, store: dict[bytes, bytes] | None) -> Any:
        gssapi = load_gssapi()
        principal = self.options.principal
        try:
            name = None if principal is None else gssapi.Name(principal, gssapi.NameType.kerberos_principal)
            found = gssapi.Credentials(name=name, usage="initiate", mechs=[gssapi.MechType.kerberos], store=store)
            _ = found.lifetime  # raises for an expired one
        except gssapi.exceptions.ExpiredCredentialsError:
            raise KerberosError(*_expired()) from None
        except gssapi.exceptions.GSSError as problem:
            raise kerberos_error(problem, is_acceptor=False) from None
        return found

    def _renew_cache(self) -> None:
        """Run `kinit -R`, as Kafka does. A failure is ignored: another process may have renewed the cache."""
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
        return f"<TicketCache {self.options.principal or 'of the ticket cache'}>"


@lru_cache(maxsize=TICKETS_MAX)
def tickets_of(options: Krb5Options, times: RenewalTimes, kinit: str) -> TicketCache:
    """Return one object for all clients of this process with the same login: they share their tickets."""
    return TicketCache(options, times, kinit)


def _keytab_store(key: bytes, path: str | None) -> dict[bytes, bytes] | None:
    return None if path is None else {key: os.fsencode(path)}


def _expired() -> tuple[str, KerberosFault]:
    fault = fault_of(_TICKET_EXPIRED, is_acceptor=False)
    return fault_message(fault, ""), fault


_TICKET_EXPIRED: Final = -1765328352
