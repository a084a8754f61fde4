"""Translation of Java client properties to librdkafka's.

Kafka's tools, Spark and their users use Java properties. Most have the same name in librdkafka; the tables below have
the others. Java writes logins as JAAS text, librdkafka as name and password. Key stores that are not PEM files (JKS,
PKCS12) are read here, and librdkafka gets their contents.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ottla.client.errors import ClientError
from ottla.security.client_protocol import PROPERTY, TLS_PROPERTY, TOKEN_PROPERTY, security_protocol

RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "sasl.mechanism": "sasl.mechanisms",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
# Java classes and limits of the Java client that have no effect here.
IGNORED_PROPERTIES = frozenset(
    {
        "auto.include.jmx.reporter",
        "default.api.timeout.ms",
        "exclude.internal.topics",
        "interceptor.classes",
        "key.deserializer",
        "key.serializer",
        "max.block.ms",
        "max.poll.records",
        "metric.reporters",
        "partitioner.class",
        "value.deserializer",
        "value.serializer",
    }
)
PEM_STORES = {
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.location": "ssl.certificate.location",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
# librdkafka gets the text instead of these files.
PEM_REPLACES = {
    "ssl.ca.pem": "ssl.ca.location",
    "ssl.certificate.pem": "ssl.certificate.location",
    "ssl.key.pem": "ssl.key.location",
}
STORE_TYPES = ("ssl.truststore.type", "ssl.keystore.type")
JAAS = "sasl.jaas.config"
OAUTH_OPTIONS = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
    "ssl.truststore.location": "https.ca.location",  # of the identity provider; librdkafka accepts only PEM
}
KERBEROS_OPTIONS = {
    "keyTab": "sasl.kerberos.keytab",
    "principal": "sasl.kerberos.principal",
    "serviceName": "sasl.kerberos.service.name",
    "ticketCache": "sasl.kerberos.ticket.cache",  # not librdkafka's: read by kafka_python.py
}
NO_TOKENS = (
    "librdkafka cannot log in with a delegation token (tokenauth=true in sasl.jaas.config): use a user's name and "
    "password, or Kerberos"
)
UNSECURED_SUBJECT = "unsecuredLoginStringClaim_sub"
UNKNOWN_PROPERTIES_MAX = 100
_NO_SUCH_PROPERTY = re.compile(r'No such configuration property: "([^"]+)"')


def translate(properties: Mapping[str, str]) -> dict[str, Any]:
    """Java client properties under librdkafka's names."""
    found: dict[str, Any] = {}
    for name, value in properties.items():
        if name in IGNORED_PROPERTIES or name in STORE_TYPES:
            continue
        if name == "buffer.memory" and value.strip().isdecimal():
            found["queue.buffering.max.kbytes"] = max(1, int(value) // 1024)
        elif name in (JAAS, PROPERTY, TLS_PROPERTY):
            continue
        elif name in PEM_STORES:
            found |= _store(name, value.strip(), properties)
        elif name == "ssl.endpoint.identification.algorithm":
            found[name] = value.strip() or "none"
        else:
            found[RENAMED.get(name, name)] = value.strip()
    if PROPERTY in properties or TLS_PROPERTY in properties:
        found[PROPERTY] = security_protocol(properties)
    return _with_java_stores(found | _login(properties), properties)


def make_without_unknown(
    make: Callable[[dict[str, Any]], Any],
    settings: Mapping[str, Any],
    failure: type[Exception],
    on_unknown: Callable[[str], None],
) -> Any:
    """Create a librdkafka client; unknown properties are left out and reported, as a Java client does.

    `failure` is the exception type of the library, which is raised for every other problem.
    """
    wanted = dict(settings)
    if TOKEN_PROPERTY in wanted:
        raise ClientError(NO_TOKENS)
    for _ in range(UNKNOWN_PROPERTIES_MAX):
        try:
            return make(wanted)
        except failure as problem:
            unknown = _NO_SUCH_PROPERTY.search(str(problem.args[0].str()))
            if unknown is None or wanted.pop(unknown.group(1), None) is None:
                raise
            on_unknown(unknown.group(1))
    return make(wanted)


def _login(properties: Mapping[str, str]) -> dict[str, str]:
    """The JAAS configuration, a text or a file, under librdkafka's names; Kerberos has settings of its own there."""
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or ""
    is_asked_for = security_protocol(properties).startswith("SASL_")
    if JAAS not in properties and (not is_asked_for or "sasl.username" in properties):
        return {}
    from ottla.security.jaas import JaasError, client_module  # noqa: PLC0415 (most tools need no login)

    try:
        module = client_module(properties, mechanism)
    except JaasError as problem:
        raise ClientError(str(problem)) from None
    options = module.options if module is not None else {}
    if module is not None and "Krb5LoginModule" in module.short_name:
        return {name: options[option] for option, name in KERBEROS_OPTIONS.items() if option in options}
    found = {f"sasl.{name}": options[name] for name in ("username", "password") if name in options}
    if module is not None and module.is_true("tokenauth"):
        found[TOKEN_PROPERTY] = "true"
    if mechanism.upper() == "OAUTHBEARER":
        found |= {name: options[option] for option, name in OAUTH_OPTIONS.items() if option in options}
        if "sasl.oauthbearer.token.endpoint.url" in properties:
            found["sasl.oauthbearer.method"] = "oidc"
        elif UNSECURED_SUBJECT in options:
            found["enable.sasl.oauthbearer.unsecure.jwt"] = "true"
            found["sasl.oauthbearer.config"] = f"principal={options[UNSECURED_SUBJECT]}"
    return found


def _store(name: str, value: str, properties: Mapping[str, str]) -> dict[str, str]:
    found = {PEM_STORES[name]: value}
    if name == "ssl.keystore.location":
        found["ssl.key.location"] = value  # a PEM file has the key and its certificates
        if password := properties.get("ssl.key.password"):
            found["ssl.key.password"] = password
    return found


def _with_java_stores(found: dict[str, Any], properties: Mapping[str, str]) -> dict[str, Any]:
    if not any(name.startswith("ssl.") for name in properties):
        return found
    from ottla.security.client_tls import librdkafka_pem  # noqa: PLC0415 (most tools need no TLS)
    from ottla.security.tls import TlsError  # noqa: PLC0415

    try:
        read = librdkafka_pem(properties)
    except TlsError as problem:
        raise ClientError(str(problem)) from None
    for name in ("ssl.truststore.password", *(PEM_REPLACES[item] for item in read if item in PEM_REPLACES)):
        found.pop(name, None)
    if "ssl.key.pem" in read:
        found.pop("ssl.keystore.password", None)
        found.pop("ssl.key.password", None)
    return found | read
