"""Certificates and protocols of TLS: of listeners, of connections to other brokers, and of clients (tools, pipelines).

A client's properties have the same names and defaults, so they are read by the same class. A listener may have its own:
`listener.name.internal.ssl.keystore.location`.
"""

from __future__ import annotations

from ottla.base.broker_keys.words import LOW, NO_JAVA, NO_PROVIDERS, PER_BROKER, PER_LISTENER, SEEN_IN_FILE
from ottla.base.setting_types import one_of
from ottla.base.settings import Boolean, ClassName, Items, OptionalText, Password, Settings, Text


class TlsKeys(Settings):
    """Certificates and protocols of TLS listeners."""

    ssl_allow_dn_changes = Boolean(
        False, importance=LOW, note="Whether a renewed certificate may bear another distinguished name."
    )
    ssl_allow_san_changes = Boolean(
        False, importance=LOW, note="Whether a renewed certificate may leave out alternative names."
    )
    ssl_cipher_suites = Items(
        mode=PER_BROKER, note="Cipher suites that may be used, in Java's names; empty is all that are safe."
    )
    ssl_client_auth = Text(
        "none",
        check=one_of("required", "requested", "none"),
        mode=PER_BROKER,
        note="Whether clients must show a certificate: required, requested or none.",
    )
    ssl_enabled_protocols = Items(("TLSv1.2", "TLSv1.3"), mode=PER_BROKER, note="Versions of TLS that may be used.")
    ssl_endpoint_identification_algorithm = Text(
        "https",
        importance=LOW,
        mode=PER_BROKER,
        note="How the name in a server's certificate is checked; empty is not at all.",
    )
    ssl_engine_factory_class = ClassName(
        importance=LOW, unused=NO_JAVA, mode=PER_LISTENER, note="Class that makes TLS engines."
    )
    ssl_key_password = Password(mode=PER_LISTENER, note="Secret of the private key; without it, that of the store.")
    ssl_keymanager_algorithm = Text(
        "SunX509", unused=NO_PROVIDERS, mode=PER_BROKER, note="Algorithm of the key manager."
    )
    ssl_keystore_certificate_chain = Password(mode=PER_LISTENER, note="Certificate chain as PEM text.")
    ssl_keystore_key = Password(mode=PER_LISTENER, note="Private key as PEM text.")
    ssl_keystore_location = OptionalText(
        mode=PER_LISTENER, note="File with the broker's key and certificate: JKS, PKCS12 or PEM."
    )
    ssl_keystore_password = Password(mode=PER_LISTENER, note="Secret of that file.")
    ssl_keystore_type = Text(
        "JKS", unused=SEEN_IN_FILE, mode=PER_LISTENER, note="Form of that file: JKS, PKCS12 or PEM."
    )
    ssl_principal_mapping_rules = Text(
        "DEFAULT", importance=LOW, note="Rules that make short names of certificate names."
    )
    ssl_protocol = Text(
        "TLSv1.3", mode=PER_BROKER, note="Highest version of TLS, where ssl.enabled.protocols is empty."
    )
    ssl_provider = OptionalText(unused=NO_PROVIDERS, mode=PER_BROKER, note="Java provider of TLS.")
    ssl_secure_random_implementation = OptionalText(
        importance=LOW, unused=NO_PROVIDERS, mode=PER_BROKER, note="Source of random numbers for TLS."
    )
    ssl_trustmanager_algorithm = Text(
        "PKIX", unused=NO_PROVIDERS, mode=PER_BROKER, note="Algorithm of the trust manager."
    )
    ssl_truststore_certificates = Password(mode=PER_LISTENER, note="Trusted certificates as PEM text.")
    ssl_truststore_location = OptionalText(
        mode=PER_LISTENER, note="File with trusted certificates; without it, those of the system."
    )
    ssl_truststore_password = Password(mode=PER_LISTENER, note="Secret of that file.")
    ssl_truststore_type = Text(
        "JKS", unused=SEEN_IN_FILE, mode=PER_LISTENER, note="Form of that file: JKS, PKCS12 or PEM."
    )
