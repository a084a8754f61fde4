"""Names in certificates are written as Java writes them: every expectation was made by X500Principal.getName()."""

import contextlib

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type as Asn1
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from certificates import Authority
from ottla.base.security import ANONYMOUS
from ottla.security.certificates import read_certificate, rfc2253
from ottla.security.der import DerError, parse
from ottla.security.principal_mapping import MappingError, PrincipalMapping

DAY_MS = 86_400_000


def attribute(kind: x509.ObjectIdentifier, value: str, form: Asn1 | None = None) -> x509.NameAttribute:
    return x509.NameAttribute(kind, value) if form is None else x509.NameAttribute(kind, value, _type=form)


CN, ORG, OU = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME
PLACE, STATE = NameOID.LOCALITY_NAME, NameOID.STATE_OR_PROVINCE_NAME
NAMES = [
    (
        [
            (NameOID.COUNTRY_NAME, "DE"),
            (STATE, "Bayern"),
            (PLACE, "München"),
            (ORG, "Ottla, Inc."),
            (OU, "R+D"),
            (CN, "a"),
        ],
        r"CN=a,OU=R\+D,O=Ottla\, Inc.,L=München,ST=Bayern,C=DE",
    ),
    ([(CN, " #lead and trail  ")], r"CN=\ \#lead and trail\ \ "),
    ([(CN, 'a"b\\c<d>e;f=g')], r"CN=a\"b\\c\<d\>e\;f\=g"),
    ([(NameOID.EMAIL_ADDRESS, "a@b.c"), (CN, "x")], "CN=x,1.2.840.113549.1.9.1=#16056140622e63"),
    (
        [(NameOID.DOMAIN_COMPONENT, "org"), (NameOID.USER_ID, "u1"), (NameOID.STREET_ADDRESS, "Road 1")],
        "STREET=Road 1,UID=u1,DC=org",
    ),
    (
        [(NameOID.SERIAL_NUMBER, "42"), (NameOID.TITLE, "Dr"), (CN, "日本語\0z")],
        r"CN=日本語\00z,2.5.4.12=#0c024472,2.5.4.5=#13023432",
    ),
    ([(CN, "   ")], r"CN=\ \ \ "),
    ([(ORG, "uni", Asn1.UniversalString), (PLACE, "t61", Asn1.T61String)], "L=t61,O=#1c0c000000750000006e00000069"),
    ([], ""),
]


@pytest.mark.parametrize(("parts", "text"), NAMES)
def test_a_name_is_written_as_java_does(parts: list[tuple], text: str) -> None:
    name = x509.Name([attribute(*part) for part in parts])
    assert rfc2253(parse(name.public_bytes())) == text


def test_several_values_of_one_part_are_joined() -> None:
    part = x509.RelativeDistinguishedName([attribute(CN, "two"), attribute(OU, "one")])
    assert rfc2253(parse(x509.Name([part]).public_bytes())) == "CN=two+OU=one"


def test_the_facts_of_a_certificate() -> None:
    made = Authority().issue("broker", hosts=("localhost", "10.1.2.3"))
    facts = read_certificate(made.der)
    assert facts.subject == "CN=broker"
    assert facts.alternative_names == {(2, b"localhost"), (7, bytes([10, 1, 2, 3]))}
    until_ms = int(made.certificate.not_valid_after_utc.timestamp() * 1000)
    assert facts.not_after_ms == until_ms
    assert facts.days_left(until_ms - 3 * DAY_MS) == 3.0


@given(st.binary(max_size=200))
def test_bytes_that_are_no_certificate_are_told_as_such(data: bytes) -> None:
    with pytest.raises(DerError):
        read_certificate(data)


@given(st.data())
def test_a_damaged_certificate_is_read_or_refused(data: st.DataObject) -> None:
    der = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 4))):
        der[data.draw(st.integers(0, len(der) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DerError):
        read_certificate(bytes(der))


WHOLE = Authority().issue("broker").der

MAPPED = [
    ("DEFAULT", "CN=alice,OU=Sales", "CN=alice,OU=Sales"),
    ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=kafka1,OU=ServiceUsers,O=Unknown", "kafka1"),
    ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L", "CN=Alice,OU=SME,C=US", "alice@sme"),
    ("RULE:^cn=(.*?),.*$/$1/U, RULE:^CN=(.*?)$/$1/U", "CN=bob", "BOB"),
    ("RULE:^CN=nobody$/x/,DEFAULT", "CN=bob", "CN=bob"),
    (r"RULE:^CN=(.*)$/a\/b $1 $2 \$1/", "CN=x", "a/b x $2 $1"),
    (r"RULE:CN=(\w+),.*/$10/", "CN=x,O=y", "x0"),
    ("", "CN=x", "CN=x"),
]


@pytest.mark.parametrize(("rules", "name", "mapped"), MAPPED)
def test_mapping_rules(rules: str, name: str, mapped: str) -> None:
    assert PrincipalMapping(rules).name(name) == mapped


@pytest.mark.parametrize(
    "rules", ["deault", "RULE:", "RULE:^CN=(.*)$/$1", "RULE:(/x/", "DEFAULT nonsense", "RULE:a/b/X"]
)
def test_rules_that_make_no_sense_are_refused(rules: str) -> None:
    with pytest.raises(MappingError, match="Invalid rule"):
        PrincipalMapping(rules)


def test_a_name_that_no_rule_fits_is_nobodys() -> None:
    with pytest.raises(MappingError, match="No rules apply to CN=alice"):
        PrincipalMapping("RULE:^CN=bob$/bob/").name("CN=alice")


def test_a_certificate_becomes_a_principal() -> None:
    mapping = PrincipalMapping("RULE:^CN=(.*)$/$1/")
    assert mapping.principal(WHOLE) == "User:broker"
    assert mapping.principal(None) == ANONYMOUS
