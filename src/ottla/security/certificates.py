"""What we read in an X.509 certificate: whose it is, until when it is good, which hosts it names. Pure.

The name of a subject is written as Java's X500Principal.getName() writes it (RFC 2253), because principals, access
rules and mapping rules of a Kafka cluster are made of that text.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, NamedTuple

from ottla.security.der import OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, UTC_TIME, DerError, Item, items, parse
from ottla.security.der import object_identifier as dotted

SUBJECT_ALTERNATIVE_NAME: Final = "2.5.29.17"
EXTENSIONS_TAG: Final = 0xA3
VERSION_TAG: Final = 0xA0
MS_PER_DAY: Final = 86_400_000

# The types that RFC 2253 has a word for, as far as Java uses it; all others are written as numbers, their value as hex.
KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# UTF8, Printable, T61, IA5, General and BMP strings: what Java takes for text.
TEXT_TAGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
ESCAPED: Final = frozenset(',=+<>#;"\\')
BLANKS: Final = " \r"


class Certificate(NamedTuple):
    """The facts of one certificate."""

    subject: str
    not_after_ms: int
    alternative_names: frozenset[tuple[int, bytes]]  # kind (2 = DNS, 7 = IP address) and value

    def days_left(self, now_ms: int) -> float:
        return (self.not_after_ms - now_ms) / MS_PER_DAY


def read_certificate(der: bytes) -> Certificate:
    """Raises DerError."""
    try:
        body = parse(der).expect(SEQUENCE).children()[0].expect(SEQUENCE).children()
        fields = body[1:] if body[0].tag == VERSION_TAG else body
        # serial number, signature, issuer, validity, subject, key, then what is optional
        validity, subject = fields[3].expect(SEQUENCE), fields[4].expect(SEQUENCE)
        return Certificate(rfc2253(subject), _time_ms(validity.children()[1]), _alternative_names(fields[6:]))
    except IndexError:
        raise DerError("not a certificate") from None


def rfc2253(name: Item) -> str:
    """A distinguished name, the most special part first, as Java writes it."""
    parts = ["+".join(_attribute(item) for item in part.children()) for part in name.children()]
    return ",".join(reversed(parts))


def _attribute(item: Item) -> str:
    kind, value = item.expect(SEQUENCE).children()[:2]
    number = dotted(kind.expect(OBJECT_IDENTIFIER).content)
    keyword = KEYWORDS.get(number)
    if keyword is None or value.tag not in TEXT_TAGS:
        return f"{keyword or number}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    leading = len(text) - len(text.lstrip(BLANKS))
    trailing = max(leading, len(text.rstrip(BLANKS)))
    written = []
    for index, char in enumerate(text):
        if char in ESCAPED or (char in BLANKS and not leading <= index < trailing):
            written.append("\\" + char)
        else:
            written.append("\\00" if char == "\0" else char)
    return "".join(written)


def _time_ms(item: Item) -> int:
    text = item.content.decode("ascii", "replace")
    if item.tag == UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    try:
        when = datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise DerError(f"a certificate that is valid until {text!r}") from None
    return int(when.timestamp() * 1000)


def _alternative_names(rest: list[Item]) -> frozenset[tuple[int, bytes]]:
    found: set[tuple[int, bytes]] = set()
    for item in rest:
        if item.tag != EXTENSIONS_TAG:
            continue
        for extension in parse(item.content).expect(SEQUENCE).children():
            parts = extension.children()
            if dotted(parts[0].content) == SUBJECT_ALTERNATIVE_NAME:
                names = parse(parts[-1].expect(OCTET_STRING).content).expect(SEQUENCE)
                found.update((name.tag & 0x1F, name.content) for name in items(names.content))
    return frozenset(found)
