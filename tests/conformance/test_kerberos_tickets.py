"""Tickets of clients: got from a keytab or a cache, and renewed before they end. A real KDC, and a clock of our own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance.kerberos_realm import living_in

from ottla.security.jaas import parse_value
from ottla.security.kerberos import KerberosError, Krb5Options, RenewalTimes, TicketCache
from ottla.testing.kdc import Kdc, is_installed

pytestmark = [pytest.mark.needs_ottla, pytest.mark.skipif(not is_installed(), reason="no krb5-kdc on this machine")]

HOUR_MS = 3_600_000
EXACTLY = RenewalTimes(jitter=0.0)


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


@pytest.fixture(scope="module")
def realm() -> Iterator[Kdc]:
    with Kdc(lifetime="10h") as kdc, living_in(kdc):
        yield kdc


@pytest.fixture
def kdc(realm: Kdc) -> Kdc:
    return realm.start()


def requests(kdc: Kdc, principal: str) -> int:
    """The number of ticket-granting tickets that the KDC has issued to this user."""
    return sum("AS_REQ" in line and "ISSUE" in line and f"{principal}@" in line for line in kdc.logs.splitlines())


def tickets(jaas: str, clock: Clock, times: RenewalTimes = EXACTLY, kinit: str = "/usr/bin/kinit") -> TicketCache:
    return TicketCache(Krb5Options.of(parse_value(jaas)), times, kinit, clock)


def test_when_a_ticket_is_renewed() -> None:
    times = RenewalTimes(window_factor=0.8, jitter=0.05, min_before_relogin_ms=60_000)
    assert times.next_ms(1_000, 100_000, 0.0) == 81_000
    assert times.next_ms(1_000, 100_000, 1.0) == 86_000
    assert times.next_ms(1_000, 70_000, 0.0) == 61_000  # not sooner than the shortest time between two logins
    assert times.next_ms(1_000, 30_000, 0.0) == 31_000  # nor later than its end
    written = {
        "sasl.kerberos.ticket.renew.window.factor": "0.5",
        "sasl.kerberos.ticket.renew.jitter": "0.1",
        "sasl.kerberos.min.time.before.relogin": "5",
    }
    assert RenewalTimes.of(written) == RenewalTimes(0.5, 0.1, 5)


def test_a_new_ticket_is_got_before_the_old_one_ends(kdc: Kdc) -> None:
    clock = Clock()
    ours = tickets(kdc.jaas("anna"), clock)
    first = ours.credentials()
    clock.ms += 7 * HOUR_MS
    assert ours.credentials() is first
    assert requests(kdc, "anna") == 1
    clock.ms += HOUR_MS
    assert ours.credentials() is not first
    assert requests(kdc, "anna") == 2


def test_without_a_kdc_the_old_ticket_is_used_until_it_expires(kdc: Kdc) -> None:
    clock = Clock()
    ours = tickets(kdc.jaas("berta"), clock)
    first = ours.credentials()
    kdc.stop()
    clock.ms += 9 * HOUR_MS
    assert ours.credentials() is first
    clock.ms += HOUR_MS
    with pytest.raises(KerberosError, match="no KDC of the realm answers"):
        ours.credentials()
    kdc.start()
    assert ours.credentials() is not first


def test_a_ticket_cache_is_renewed_by_the_command_that_is_named(kdc: Kdc, tmp_path: Path) -> None:
    cache = kdc.ticket("clara", tmp_path / "cache", "-r", "7d")
    command = tmp_path / "kinit"
    command.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/words\nexec kinit "$@"\n')
    command.chmod(0o700)
    clock = Clock()
    jaas = f'com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true ticketCache="{cache}";'
    ours = tickets(jaas, clock, kinit=str(command))
    ours.credentials()
    assert not (tmp_path / "words").exists()
    clock.ms += 8 * HOUR_MS
    ours.credentials()
    assert (tmp_path / "words").read_text() == f"-R -c {cache}\n"
    assert "TGS_REQ" in kdc.logs


def test_a_keytab_where_the_cache_has_nothing(kdc: Kdc, tmp_path: Path) -> None:
    """Java tries both, in this order."""
    jaas = kdc.jaas("dora").replace("useKeyTab", f'useTicketCache=true ticketCache="{tmp_path}/none" useKeyTab')
    assert str(tickets(jaas, Clock()).credentials().name) == "dora@EXAMPLE.COM"


def test_a_ticket_that_has_ended(kdc: Kdc, tmp_path: Path) -> None:
    cache = kdc.ticket("emil", tmp_path / "cache", "-l", "1s", "-s", "-1h")
    jaas = f'com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true ticketCache="{cache}";'
    with pytest.raises(KerberosError, match="the ticket has expired"):
        tickets(jaas, Clock()).credentials()
