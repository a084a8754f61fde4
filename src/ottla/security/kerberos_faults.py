"""What is wrong when a login by Kerberos fails: cause and cure for each error of MIT's library.  Pure.

The library's own words come along, since they name principals, key numbers and files. None of them is a secret, but a
client at the door is told none of it: this is for logs and for whoever runs a tool.
"""

from __future__ import annotations

import errno
from typing import Final, NamedTuple

ERROR_TABLE: Final = -1765328384  # where MIT's library puts the error numbers of Kerberos
NO_SUCH_KEY_IN_KEYTAB: Final = 39756033  # of its GSSAPI layer

KEYTAB_CURE: Final = "look at it with klist -kte FILE, and export it anew: ktadd -k FILE PRINCIPAL"
CLOCK_CURE: Final = "set both clocks by NTP: Kerberos allows 5 minutes"
SERVICE_CURE: Final = (
    "sasl.kerberos.service.name of the client must be the first part of the broker's principal, and the host name that "
    "the client connects to its second part"
)


class Fault(NamedTuple):
    """One thing that can be wrong. `word` is what people call it."""

    word: str
    cause: str
    cure: str


CLOCK: Final = Fault("clock", "the clocks of the two machines differ too much", CLOCK_CURE)
EXPIRED: Final = Fault("expired", "the ticket has expired", "get a new one: kinit, or a login with a keytab")
SERVICE: Final = Fault("service name", "Kerberos knows no such service", SERVICE_CURE)
OTHER_SERVICE: Final = Fault("service name", "the ticket is for another service than this broker is", SERVICE_CURE)
KVNO: Final = Fault(
    "kvno",
    "the key was changed in Kerberos, and the broker's keytab has only older ones",
    "export the keytab anew (ktadd -norandkey keeps the key); it is read at the next login, without a restart",
)
STALE_TICKET: Final = Fault(
    "kvno",
    "the ticket was made with another key than the keytab has",
    "if the keytab is new, get a new ticket (kinit); if not, export the keytab anew: " + KEYTAB_CURE,
)
PASSWORD: Final = Fault(
    "password", "the password or the key in the keytab is not the one that Kerberos has", KEYTAB_CURE
)
NO_KEYTAB: Final = Fault(
    "keytab", "the keytab cannot be read", "check keyTab in the JAAS settings, and that this user may read the file"
)
BAD_KEYTAB: Final = Fault("keytab", "the file is no keytab", KEYTAB_CURE)
NOT_IN_KEYTAB: Final = Fault(
    "keytab",
    "the keytab has no key of this principal",
    "compare principal in the JAAS settings with klist -kt FILE: host name, upper and lower case, realm",
)
UNKNOWN_CLIENT: Final = Fault(
    "principal", "Kerberos knows no such principal", "compare principal in the JAAS settings with the KDC's list"
)
NO_TICKET: Final = Fault(
    "ticket", "there is no ticket", "get one (kinit; klist shows it), or use a keytab: useKeyTab=true keyTab=FILE"
)
NO_KDC: Final = Fault(
    "kdc",
    "no KDC of the realm answers",
    "check kdc of the realm in krb5.conf (KRB5_CONFIG, or KAFKA_OPTS=-Djava.security.krb5.conf=FILE), and the network",
)
NO_REALM: Final = Fault(
    "realm",
    "krb5.conf says nothing about the realm",
    "name the realm and its kdc there (KRB5_CONFIG, or KAFKA_OPTS=-Djava.security.krb5.conf=FILE)",
)
CIPHERS: Final = Fault(
    "encryption",
    "both sides have no encryption type in common",
    "make new keys with AES (ktadd), and compare permitted_enctypes in krb5.conf with klist -kte FILE",
)
REPLAY: Final = Fault("replay", "the same login was sent twice", "if nobody is attacking, the client may try again")
NO_REPLAY_CACHE: Final = Fault(
    "replay cache",
    "the file in which logins are remembered cannot be written",
    "make the folder of temporary files (KRB5RCNAME, else /var/tmp) writable for the broker",
)
LOCKED: Final = Fault("principal", "the principal is locked or has expired", "ask whoever looks after the KDC")
OTHER: Final = Fault("other", "Kerberos refuses", "KRB5_TRACE=/dev/stderr shows each step of the library")

_BOTH: Final = {
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
_OF_THE_SYSTEM: Final = {errno.ENOENT: NO_KEYTAB, errno.EACCES: NO_KEYTAB, NO_SUCH_KEY_IN_KEYTAB: NOT_IN_KEYTAB}
_INTEGRITY: Final = 31


def fault_of(minor_code: int, *, is_acceptor: bool) -> Fault:
    """What an error number of the library means: to a broker that is asked in, or to whoever asks."""
    signed = minor_code - (1 << 32) if minor_code >= 1 << 31 else minor_code
    number = signed - ERROR_TABLE
    if number == _INTEGRITY:  # cannot decrypt: the broker its ticket, the client what the KDC has sent
        return STALE_TICKET if is_acceptor else PASSWORD
    return _OF_THE_SYSTEM.get(signed) or _BOTH.get(number, OTHER)


def sentence(fault: Fault, words: str) -> str:
    """One line with the cause, the library's words and the cure."""
    said = f" ({words})" if words and not words.startswith("Unknown error") else ""
    return f"{fault.cause}{said}: {fault.cure}"
