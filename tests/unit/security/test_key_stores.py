"""Stores of every form, made by `cryptography` and by Java's keytool, whole and damaged."""

from pathlib import Path

import pytest

from certificates import PASSWORD, Authority, Identity
from ottla.security.key_stores import KeyStoreError, read_file, read_key_store, read_trust_store

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
def test_a_wrong_password_is_told_and_not_repeated(stores: dict[str, bytes], form: str, said: str) -> None:
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
