"""Secure connections to ZooKeeper: login and TLS, for brokers and tools.

Rules:
1. As in Java, the login is the section Client of the file in KAFKA_OPTS=-Djava.security.auth.login.config
   (`zookeeper.sasl.clientconfig` sets another section, `zookeeper.sasl.client=false` disables logins): a password
   (DigestLoginModule), or Kerberos (Krb5LoginModule) at the service `zookeeper.sasl.client.username`, or zookeeper.
2. TLS follows the settings `zookeeper.ssl.*`, otherwise the equivalent Java properties in KAFKA_OPTS.
3. The host name is verified, unless zookeeper.ssl.endpoint.identification.algorithm is empty.
4. Never continue without a requested protection: ZooKeeperSecurityError, one line.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from ottla.base.broker_keys.security import TlsKeys
from ottla.base.broker_keys.zookeeper import ZooKeeperKeys
from ottla.base.properties import PropertiesError, read_properties
from ottla.security.jaas import (
    FILE_PROPERTY,
    ZOOKEEPER_SECTION,
    AppConfigurationEntry,
    JaasError,
    java_properties,
    read_sections,
)
from ottla.security.sasl.digest_md5 import DigestMd5Client
from ottla.security.sasl.exchange import ClientExchange

if TYPE_CHECKING:
    import ssl

    from ottla.security.tls import ReloadingTlsContext

SERVICE: Final = "zookeeper"
DIGEST_HOST: Final = "zk-sasl-md5"  # a constant of ZooKeeper, independent of its host name
NONCE_BYTES: Final = 16
# Java's client properties, and the broker's settings.
JAVA_NAMES: Final = {
    "zookeeper.client.secure": "zookeeper.ssl.client.enable",
    "zookeeper.ssl.keyStore.location": "zookeeper.ssl.keystore.location",
    "zookeeper.ssl.keyStore.password": "zookeeper.ssl.keystore.password",
    "zookeeper.ssl.trustStore.location": "zookeeper.ssl.truststore.location",
    "zookeeper.ssl.trustStore.password": "zookeeper.ssl.truststore.password",
    "zookeeper.ssl.protocol": "zookeeper.ssl.protocol",
    "zookeeper.ssl.enabledProtocols": "zookeeper.ssl.enabled.protocols",
    "zookeeper.ssl.ciphersuites": "zookeeper.ssl.cipher.suites",
    "zookeeper.ssl.crl": "zookeeper.ssl.crl.enable",
    "zookeeper.ssl.ocsp": "zookeeper.ssl.ocsp.enable",
}
JAVA_HOST_CHECK: Final = "zookeeper.ssl.hostnameVerification"
HOST_CHECK: Final = "zookeeper.ssl.endpoint.identification.algorithm"
NO_IDENTITY: Final = (
    "zookeeper.set.acl is true, but this broker has no identity: set a JAAS file with a section Client "
    f"(KAFKA_OPTS=-D{FILE_PROPERTY}=FILE), or set zookeeper.ssl.client.enable and zookeeper.ssl.keystore.location"
)

MakeExchange = Callable[[str], ClientExchange]
"""Takes the host name of the server."""


class ZooKeeperSecurityError(Exception):
    """Settings or files that cannot be used for a connection to ZooKeeper, in one line."""


class ZooKeeperClientSecurity:
    """The security of all ZooKeeper connections of a process."""

    def __init__(
        self, make_login: MakeExchange | None = None, tls_keys: TlsKeys | None = None, *, sets_rights: bool = False
    ) -> None:
        """Raises ZooKeeperSecurityError."""
        self.make_login = make_login
        self.sets_acls = sets_rights  # whether nodes get ACLs for their creator
        self._tls_keys = tls_keys
        self._tls: ReloadingTlsContext | None = None
        if tls_keys is not None:
            from ottla.security.tls import ReloadingTlsContext, TlsError, client_context  # noqa: PLC0415 (loads ssl)

            try:
                self._tls = ReloadingTlsContext("the connection to ZooKeeper", tls_keys, client_context)
            except TlsError as problem:
                raise ZooKeeperSecurityError(f"TLS to ZooKeeper (zookeeper.ssl.*): {problem}") from None

    @property
    def can_authenticate(self) -> bool:
        """Whether this process can authenticate itself to ZooKeeper."""
        has_key = self._tls_keys is not None and self._tls_keys.ssl_keystore_location is not None
        return self.make_login is not None or has_key

    def context(self) -> ssl.SSLContext | None:
        """Return the context for a new connection, with the current files; None without TLS. Reads files."""
        if self._tls is None:
            return None
        self._tls.refresh()
        return self._tls.context()

    def __repr__(self) -> str:
        parts = [name for name, is_on in (("login", self.make_login), ("TLS", self._tls)) if is_on]
        return f"<ZooKeeperClientSecurity {' and '.join(parts) or 'none'}>"


def broker_security(settings: ZooKeeperKeys, environment: Mapping[str, str]) -> ZooKeeperClientSecurity:
    """Return the security from the settings of a broker and its environment. Raises ZooKeeperSecurityError."""
    java = java_properties(environment)
    keys = _with_java(settings, java)
    found = ZooKeeperClientSecurity(_make_login(java), _tls_keys(keys), sets_rights=settings.zookeeper_set_acl)
    if found.sets_acls and not found.can_authenticate:
        raise ZooKeeperSecurityError(NO_IDENTITY)
    return found


def tool_security(environment: Mapping[str, str], tls_file: str | None = None) -> ZooKeeperClientSecurity:
    """Return the security from the environment, and a file with `zookeeper.ssl.*`. Raises ZooKeeperSecurityError.

    As in Kafka, nodes that a tool creates get ACLs if it has logged in.
    """
    java = java_properties(environment)
    keys = _with_java(ZooKeeperKeys(_read(tls_file) if tls_file is not None else {}), java)
    found = ZooKeeperClientSecurity(_make_login(java), _tls_keys(keys))
    found.sets_acls = found.can_authenticate
    return found


def java_client_properties(tls_file: str) -> dict[str, str]:
    """Return the properties of ZooKeeper's Java client for a file with `zookeeper.ssl.*`.

    Raises ZooKeeperSecurityError.
    """
    texts = _read(tls_file)
    found = {theirs: texts[ours] for theirs, ours in JAVA_NAMES.items() if ours in texts}
    if HOST_CHECK in texts:
        found[JAVA_HOST_CHECK] = str(bool(texts[HOST_CHECK])).lower()
    return {"zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty", **found}


def _read(path: str) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8") as file:
            return {name: text for name, text in read_properties(file.read()).items() if name in ZooKeeperKeys.keys}
    except PropertiesError as problem:
        raise ZooKeeperSecurityError(f"{path}:{problem.line}: {problem.cause}") from None
    except (OSError, UnicodeDecodeError) as problem:
        cause = getattr(problem, "strerror", None) or "it is not text"
        raise ZooKeeperSecurityError(f"{path} cannot be read: {cause.lower()}") from None


# ---- TLS


def _with_java(settings: ZooKeeperKeys, java: Mapping[str, str]) -> ZooKeeperKeys:
    texts = {ours: java[theirs] for theirs, ours in JAVA_NAMES.items() if theirs in java}
    if JAVA_HOST_CHECK in java:
        texts[HOST_CHECK] = "" if java[JAVA_HOST_CHECK].lower() == "false" else "https"
    return ZooKeeperKeys({**texts, **settings.texts})


def _tls_keys(keys: ZooKeeperKeys) -> TlsKeys | None:
    if not keys.zookeeper_ssl_client_enable:
        return None
    for name in ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable"):
        if getattr(keys, name.replace(".", "_")):
            raise ZooKeeperSecurityError(f"{name}=true is not supported: remove the line")
    versions = keys.zookeeper_ssl_enabled_protocols or tuple(filter(None, [keys.zookeeper_ssl_protocol]))
    texts = {
        "ssl.endpoint.identification.algorithm": keys.zookeeper_ssl_endpoint_identification_algorithm,
        "ssl.keystore.location": keys.zookeeper_ssl_keystore_location,
        "ssl.keystore.password": keys.zookeeper_ssl_keystore_password,
        "ssl.key.password": keys.zookeeper_ssl_keystore_password,
        "ssl.truststore.location": keys.zookeeper_ssl_truststore_location,
        "ssl.truststore.password": keys.zookeeper_ssl_truststore_password,
        "ssl.enabled.protocols": ",".join(versions) or None,
        "ssl.cipher.suites": ",".join(keys.zookeeper_ssl_cipher_suites) or None,
    }
    return TlsKeys({name: text for name, text in texts.items() if text is not None})


# ---- logins


def _make_login(java: Mapping[str, str]) -> MakeExchange | None:
    path = java.get(FILE_PROPERTY)
    if not path:
        return None
    try:
        sections = read_sections(path)
    except JaasError as problem:
        raise ZooKeeperSecurityError(str(problem)) from None
    section = java.get("zookeeper.sasl.clientconfig") or ZOOKEEPER_SECTION
    modules = sections.get(section)
    if modules is None:
        return None
    if java.get("zookeeper.sasl.client", "true").lower() == "false":
        raise ZooKeeperSecurityError(
            f"{path} has a section {section}, but zookeeper.sasl.client=false disables logins at ZooKeeper: "
            "remove one of them"
        )
    place = f"{path}, section {section}"
    if "Krb5Login" in modules[0].short_name:
        return _kerberos_login(modules[0], place, java.get("zookeeper.sasl.client.username") or SERVICE)
    return _digest_login(modules[0], place)


def _kerberos_login(module: AppConfigurationEntry, place: str, service: str) -> MakeExchange:
    from ottla.security.kerberos import KerberosError  # noqa: PLC0415 (only who has Kerberos pays for it)
    from ottla.security.sasl.gssapi_mechanism import gssapi_client  # noqa: PLC0415

    try:
        return gssapi_client(module, {"sasl.kerberos.service.name": service})
    except KerberosError as problem:
        raise ZooKeeperSecurityError(f"{place}: {problem}") from None


def _digest_login(module: AppConfigurationEntry, place: str) -> MakeExchange:
    if "DigestLogin" not in module.short_name:
        raise ZooKeeperSecurityError(
            f"{place}: {module.short_name} is not served: logins at ZooKeeper are by "
            "org.apache.zookeeper.server.auth.DigestLoginModule or com.sun.security.auth.module.Krb5LoginModule"
        )
    name, password = module.options.get("username"), module.options.get("password")
    if name is None or password is None:
        raise ZooKeeperSecurityError(f"{place}: DigestLoginModule needs a username and a password")
    return lambda _: DigestMd5Client(name, password, SERVICE, DIGEST_HOST, lambda: secrets.token_hex(NONCE_BYTES))
