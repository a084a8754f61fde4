"""Stores of every form, made by `cryptography` and by Java's keytool, whole and damaged."""

import contextlib
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type as Asn1
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st
from tests.certificates import PASSWORD, Authority, Identity

from ottla.base.security import ANONYMOUS
from ottla.security.key_stores import (
    DerError,
    KeyStoreError,
    parse_der,
    read_certificate,
    read_file,
    read_key_store,
    read_trust_store,
    rfc2253,
)
from ottla.security.ssl_principal_mapper import NoMatchingRuleError, SslPrincipalMapper

AUTHORITY = Authority()
BROKER = AUTHORITY.issue("broker")
FORMS = ("pem", "pkcs12", "jks")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The same identity in every form; keytool takes a second, so once is enough."""
    folder = tmp_path_factory.mktemp("stores")
    rsa = AUTHORITY.issue("broker", is_rsa=True)
    return {
        "pem": Path(BROKER.pem(folder / "pem")).read_bytes(),
        "pkcs12": Path(BROKER.pkcs12(folder / "pkcs12")).read_bytes(),
        "jks": Path(rsa.jks(folder / "jks")).read_bytes(),
        "trusted pem": Path(AUTHORITY.certificate_pem(folder / "ca")).read_bytes(),
        "trusted pkcs12": Path(AUTHORITY.trust_store(folder / "tp", "PKCS12")).read_bytes(),
        "trusted jks": Path(AUTHORITY.trust_store(folder / "tj", "JKS")).read_bytes(),
    }


@pytest.mark.parametrize("form", FORMS)
def test_a_key_and_its_chain_in_every_form(stores: dict[str, bytes], form: str) -> None:
    store = read_key_store(stores[form], form, PASSWORD, None)
    assert len(store.chain) == 2
    assert store.chain[1] == AUTHORITY.der
    assert b"PRIVATE KEY" in store.key
    assert store.key_password is None


@pytest.mark.parametrize("form", FORMS)
def test_trusted_certificates_in_every_form(stores: dict[str, bytes], form: str) -> None:
    assert read_trust_store(stores[f"trusted {form}"], form, PASSWORD) == (AUTHORITY.der,)


def test_certificates_of_keys_are_trusted_too_as_in_java(stores: dict[str, bytes]) -> None:
    assert read_trust_store(stores["pkcs12"], "x", PASSWORD)[0] == BROKER.der
    assert len(read_trust_store(stores["jks"], "x", PASSWORD)) == 1


def test_a_java_store_of_certificates_needs_no_password(stores: dict[str, bytes]) -> None:
    assert read_trust_store(stores["trusted jks"], "x", None) == (AUTHORITY.der,)


def test_an_encrypted_key_needs_its_password(tmp_path: Path) -> None:
    data = Path(BROKER.pem(tmp_path / "x", "key secret")).read_bytes()
    assert read_key_store(data, "x", None, "key secret").key_password == "key secret"
    with pytest.raises(KeyStoreError, match=r"the private key in x is encrypted: set ssl\.key\.password"):
        read_key_store(data, "x", None, None)


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("pkcs12", "x cannot be read: the password is wrong, or the file is damaged"),
        ("jks", "x: the password is wrong, or the file is damaged"),
    ],
)
def test_a_wrong_password_is_reported_and_not_repeated(stores: dict[str, bytes], form: str, said: str) -> None:
    for read in (
        lambda data: read_key_store(data, "x", "a wrong one", None),
        lambda data: read_trust_store(data, "x", "a wrong one"),
    ):
        with pytest.raises(KeyStoreError) as caught:
            read(stores[form])
        assert str(caught.value) == said


def test_a_wrong_password_of_a_key_alone(stores: dict[str, bytes]) -> None:
    with pytest.raises(KeyStoreError, match="the password of the private key is wrong"):
        read_key_store(stores["jks"], "x", PASSWORD, "another")


@pytest.mark.parametrize("form", [*FORMS, "trusted pem", "trusted pkcs12", "trusted jks"])
@pytest.mark.parametrize("share", [0.0001, 0.1, 0.5, 0.9, 0.999])
def test_a_half_written_store_is_refused_with_one_line(stores: dict[str, bytes], form: str, share: float) -> None:
    """Also without a password, where nothing tells that the end is missing but the end itself."""
    whole = stores[form]
    half = whole[: max(1, int(len(whole) * share))]
    for password in (PASSWORD, None):
        for read in (
            lambda data, password=password: read_key_store(data, "x", password, None),
            lambda data, password=password: read_trust_store(data, "x", password),
        ):
            try:
                read(half)
            except KeyStoreError as problem:
                said = str(problem)
            else:  # a PEM file may end after any certificate
                assert form.endswith("pem") or password is None
                continue
            assert "x" in said
            assert "\n" not in said


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xce\xce\xce\xce\0\0\0\2", "x is a JCEKS store"),
        (b"hello", "x is neither PEM nor PKCS12 nor JKS"),
        (b"-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----\n", "x has no private key"),
        (b"-----BEGIN NOTHING-----\n", "x has no private key"),
        (b"\xfe\xed\xfe\xed" + b"\0" * 40, "x: the password is wrong, or the file is damaged"),
    ],
)
def test_what_is_no_key_store(data: bytes, said: str) -> None:
    with pytest.raises(KeyStoreError, match=said):
        read_key_store(data, "x", PASSWORD, None)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(KeyStoreError, match=r"cannot read .*none: no such file or directory"):
        read_file(str(tmp_path / "none"))
    (tmp_path / "empty").write_bytes(b"\n")
    with pytest.raises(KeyStoreError, match="empty is empty"):
        read_file(str(tmp_path / "empty"))


def test_a_chain_in_any_order_is_put_right(tmp_path: Path) -> None:
    """Java's tool writes the authorities in whatever order it likes."""
    middle = Authority("Middle")
    shuffled = Identity(BROKER.key, [BROKER.certificate, middle.certificate, *BROKER.chain[1:]])
    data = Path(shuffled.pkcs12(tmp_path / "x")).read_bytes()
    assert read_key_store(data, "x", PASSWORD, None).chain == (BROKER.der, AUTHORITY.der)


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
    assert rfc2253(parse_der(name.public_bytes())) == text


def test_several_values_of_one_part_are_joined() -> None:
    part = x509.RelativeDistinguishedName([attribute(CN, "two"), attribute(OU, "one")])
    assert rfc2253(parse_der(x509.Name([part]).public_bytes())) == "CN=two+OU=one"


def test_the_facts_of_a_certificate() -> None:
    made = Authority().issue("broker", hosts=("localhost", "10.1.2.3"))
    facts = read_certificate(made.der)
    assert facts.subject == "CN=broker"
    assert facts.alternative_names == {(2, b"localhost"), (7, bytes([10, 1, 2, 3]))}
    until_ms = int(made.certificate.not_valid_after_utc.timestamp() * 1000)
    assert facts.not_after_ms == until_ms
    assert facts.days_left(until_ms - 3 * DAY_MS) == 3.0


@given(st.binary(max_size=200))
def test_bytes_that_are_no_certificate_are_reported(data: bytes) -> None:
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
    ("RULE:^CN=other$/x/,DEFAULT", "CN=bob", "CN=bob"),
    (r"RULE:^CN=(.*)$/a\/b $1 $2 \$1/", "CN=x", "a/b x $2 $1"),
    (r"RULE:CN=(\w+),.*/$10/", "CN=x,O=y", "x0"),
    ("", "CN=x", "CN=x"),
]


@pytest.mark.parametrize(("rules", "name", "mapped"), MAPPED)
def test_mapping_rules(rules: str, name: str, mapped: str) -> None:
    assert SslPrincipalMapper(rules).name(name) == mapped


@pytest.mark.parametrize(
    "rules", ["deault", "RULE:", "RULE:^CN=(.*)$/$1", "RULE:(/x/", "DEFAULT nonsense", "RULE:a/b/X"]
)
def test_rules_that_make_no_sense_are_refused(rules: str) -> None:
    with pytest.raises(NoMatchingRuleError, match="Invalid rule"):
        SslPrincipalMapper(rules)


def test_a_name_that_matches_no_rule_is_refused() -> None:
    with pytest.raises(NoMatchingRuleError, match="No rules apply to CN=alice"):
        SslPrincipalMapper("RULE:^CN=bob$/bob/").name("CN=alice")


def test_a_certificate_becomes_a_principal() -> None:
    mapping = SslPrincipalMapper("RULE:^CN=(.*)$/$1/")
    assert mapping.principal(WHOLE) == "User:broker"
    assert mapping.principal(None) == ANONYMOUS
