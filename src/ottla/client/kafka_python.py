"""kafka-python in the place of librdkafka for logins that it lacks: tokens, and in confluent-kafka's packages Kerberos.

Here its clients are made, of settings in librdkafka's names; kafka_python_clients.py has what they look like. Logins
are our own (security/sasl): the keytab and the ticket cache of the settings count, and nothing of the process does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.client.kafka_python_clients import Consumer, Producer
from ottla.security.client_protocol import TOKEN_PROPERTY, client_protocol

if TYPE_CHECKING:
    from ottla.security.sasl.client_logins import ClientLogin

GSSAPI: Final = "GSSAPI"
MISSING: Final = (
    "a login by Kerberos needs the packages kafka-python and gssapi, since confluent-kafka is built without Kerberos: "
    "pip install 'ottla[kerberos]'"
)
MISSING_FOR_TOKENS: Final = (
    "a login with a delegation token needs the package kafka-python, since librdkafka knows none: "
    "pip install kafka-python"
)
RENAMED: Final = {
    "compression.codec": "compression_type",
    "delivery.timeout.ms": "delivery_timeout_ms",
    "fetch.wait.max.ms": "fetch_max_wait_ms",
    "message.max.bytes": "max_request_size",
    "message.timeout.ms": "delivery_timeout_ms",
}
# Done here, done by kafka-python in its own way, or of no meaning to it.
LEFT_OUT: Final = frozenset(
    {
        "delivery.report.only.error",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "error_cb",
        "fetch.queue.backoff.ms",
        "log_level",
        "on_delivery",
        "partitioner",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
    }
)


class KafkaPythonError(Exception):
    """It cannot be used like this: one sentence."""


def wants_kerberos(settings: Mapping[str, Any]) -> bool:
    """Whether these settings, in Java's names or librdkafka's, ask for a login by Kerberos."""
    texts = {name: value for name, value in settings.items() if isinstance(value, str)}
    mechanism = texts.get("sasl.mechanism") or texts.get("sasl.mechanisms") or GSSAPI
    return client_protocol(texts).startswith("SASL_") and mechanism.strip().upper() == GSSAPI


def wants_token(settings: Mapping[str, Any]) -> bool:
    """Whether these settings ask for a login with a delegation token."""
    return settings.get(TOKEN_PROPERTY) == "true"


def has_kerberos(library: Any) -> bool:
    """Whether this librdkafka was built with it: some people build their own."""
    try:
        library.Producer({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": GSSAPI, "log_level": 0})
    except library.KafkaException:
        return False
    return True


def make(kind: str, library: Any, settings: Mapping[str, Any], on_unknown: Callable[[str], None]) -> Any:
    """A "Producer" or "Consumer" with the errors of `library`, confluent_kafka. Raises KafkaPythonError, JaasError."""
    from ottla.security.client_tls import client_tls  # noqa: PLC0415 (most tools need no login)
    from ottla.security.sasl.client_logins import make_login  # noqa: PLC0415
    from ottla.security.tls import TlsError  # noqa: PLC0415

    try:
        import kafka  # noqa: PLC0415 (only who has Kerberos needs it)
        from kafka.net.sasl import register_sasl_mechanism  # noqa: PLC0415
    except ImportError:
        raise KafkaPythonError(MISSING_FOR_TOKENS if wants_token(settings) else MISSING) from None
    mechanism = GSSAPI
    if wants_token(settings):
        mechanism = (settings.get("sasl.mechanism") or settings.get("sasl.mechanisms") or "").strip().upper()
    register_sasl_mechanism(mechanism, _mechanism, overwrite=True)
    inner = kafka.KafkaProducer if kind == "Producer" else kafka.KafkaConsumer
    words = translated(settings, inner.DEFAULT_CONFIG, on_unknown)
    texts = {key: value for key, value in settings.items() if isinstance(value, str)}
    try:
        if (tls := client_tls(texts)) is not None:
            words["ssl_context"] = tls
    except TlsError as problem:
        raise KafkaPythonError(str(problem)) from None
    words |= {"sasl_mechanism": mechanism, "sasl_kerberos_name": make_login(mechanism, texts)}
    if kind == "Consumer":
        words["enable_auto_commit"] = False  # what was stored is committed, not what was fetched
    elif "delivery_timeout_ms" in words:  # it refuses to wait for an answer longer than for the delivery
        times = {**inner.DEFAULT_CONFIG, **words}
        room_ms = times["delivery_timeout_ms"] - times["linger_ms"]
        words["request_timeout_ms"] = max(1, min(times["request_timeout_ms"], room_ms))
    try:
        if kind == "Producer":
            return Producer(library, inner(**words), settings.get("on_delivery"))
        return Consumer(library, inner(**words))
    except (AssertionError, ValueError, kafka.errors.KafkaError) as problem:
        raise KafkaPythonError(f"kafka-python cannot be used like this: {problem}") from None


def translated(
    settings: Mapping[str, Any], known: Mapping[str, Any], on_unknown: Callable[[str], None]
) -> dict[str, Any]:
    """librdkafka's settings under kafka-python's names, with values of the types of `known`."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        word = RENAMED.get(name, name.replace(".", "_"))
        if name in LEFT_OUT or name.startswith(("sasl.", "ssl.")):
            continue
        if word in known:
            found[word] = _typed(word, value, known[word])
        else:
            on_unknown(name)
    return found


def _typed(word: str, value: Any, default: Any) -> Any:
    text = str(value).strip()
    if word == "acks":
        return "all" if text in ("all", "-1") else int(text)
    if word == "compression_type":
        return None if text == "none" else text
    if isinstance(default, bool):
        return text.lower() == "true"
    if isinstance(default, (int, float)):
        try:
            return int(text)
        except ValueError:
            raise KafkaPythonError(f"{word.replace('_', '.')}={text}: a number is needed") from None
    return text


# ---- the login


def _mechanism(**config: Any) -> Any:
    """Ours where we have made the client; kafka-python's own for everybody else in this process."""
    from ottla.security.sasl.client_logins import ClientLogin  # noqa: PLC0415

    login = config.get("sasl_kerberos_name")
    if isinstance(login, ClientLogin):
        return Mechanism(login, config["host"])
    if config["sasl_mechanism"] != GSSAPI:
        from kafka.net.sasl.scram import SaslMechanismScram  # noqa: PLC0415

        return SaslMechanismScram(**config)
    from kafka.net.sasl.gssapi import SaslMechanismGSSAPI  # noqa: PLC0415

    return SaslMechanismGSSAPI(**config)


class Mechanism:
    """Our exchange, as kafka-python asks for it."""

    def __init__(self, login: ClientLogin, host: str) -> None:
        self._name = login.mechanism
        self._exchange = login.make(host)
        self._next = self._exchange.first()

    def auth_bytes(self) -> bytes:
        return self._next

    def receive(self, auth_bytes: bytes) -> None:
        self._next = self._exchange.step(bytes(auth_bytes))

    def is_done(self) -> bool:
        return self._exchange.is_done

    def is_authenticated(self) -> bool:
        return self._exchange.is_done

    def auth_details(self) -> str:
        return f"Authenticated via SASL / {self._name}"
