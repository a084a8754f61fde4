"""Certificates and protocols of TLS listeners."""

from __future__ import annotations

from ottla.base.broker_keys.words import LOW, NO_JAVA, NO_TLS
from ottla.base.setting_types import one_of
from ottla.base.settings import Boolean, ClassName, Items, OptionalText, Password, Settings, Text


class TlsKeys(Settings):
    """Certificates and protocols of TLS listeners."""

    ssl_allow_dn_changes = Boolean(
        False, importance=LOW, unused=NO_TLS, note="Whether a renewed certificate may bear another distinguished name."
    )
    ssl_allow_san_changes = Boolean(
        False, importance=LOW, unused=NO_TLS, note="Whether a renewed certificate may leave out alternative names."
    )
    ssl_cipher_suites = Items(unused=NO_TLS, note="Cipher suites that may be used; empty is all that the system knows.")
    ssl_client_auth = Text(
        "none",
        check=one_of("required", "requested", "none"),
        unused=NO_TLS,
        note="Whether clients must show a certificate: required, requested or none.",
    )
    ssl_enabled_protocols = Items(("TLSv1.2", "TLSv1.3"), unused=NO_TLS, note="Versions of TLS that may be used.")
    ssl_endpoint_identification_algorithm = Text(
        "https",
        importance=LOW,
        unused=NO_TLS,
        note="How the name in a server's certificate is checked; empty is not at all.",
    )
    ssl_engine_factory_class = ClassName(importance=LOW, unused=NO_JAVA, note="Class that makes TLS engines.")
    ssl_key_password = Password(unused=NO_TLS, note="Secret of the private key.")
    ssl_keymanager_algorithm = Text("SunX509", unused=NO_TLS, note="Algorithm of the key manager.")
    ssl_keystore_certificate_chain = Password(unused=NO_TLS, note="Certificate chain as PEM text.")
    ssl_keystore_key = Password(unused=NO_TLS, note="Private key as PEM text.")
    ssl_keystore_location = OptionalText(unused=NO_TLS, note="File with the broker's key and certificate.")
    ssl_keystore_password = Password(unused=NO_TLS, note="Secret of that file.")
    ssl_keystore_type = Text("JKS", unused=NO_TLS, note="Form of that file: JKS, PKCS12 or PEM.")
    ssl_principal_mapping_rules = Text(
        "DEFAULT", importance=LOW, unused=NO_TLS, note="Rules that make short names of certificate names."
    )
    ssl_protocol = Text("TLSv1.3", unused=NO_TLS, note="Version of TLS that a connection starts with.")
    ssl_provider = OptionalText(unused=NO_TLS, note="Java provider of TLS.")
    ssl_secure_random_implementation = OptionalText(
        importance=LOW, unused=NO_TLS, note="Source of random numbers for TLS."
    )
    ssl_trustmanager_algorithm = Text("PKIX", unused=NO_TLS, note="Algorithm of the trust manager.")
    ssl_truststore_certificates = Password(unused=NO_TLS, note="Trusted certificates as PEM text.")
    ssl_truststore_location = OptionalText(unused=NO_TLS, note="File with trusted certificates.")
    ssl_truststore_password = Password(unused=NO_TLS, note="Secret of that file.")
    ssl_truststore_type = Text("JKS", unused=NO_TLS, note="Form of that file: JKS, PKCS12 or PEM.")
