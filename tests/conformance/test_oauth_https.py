"""Tokens of an identity provider over HTTPS, with a certificate of a private authority: real clients, a real
broker, and what goes on while the provider is away."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, Self

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from tests.certificates import Authority
from tests.conformance.java_tools import JavaTools
from tests.conformance.kerberos_realm import noted
from tests.conformance.test_sasl import librdkafka_round_trip
from tests.conftest import FOREIGN_BOOTSTRAP

from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.client.librdkafka_properties import translate
from ottla.security.sasl.client_authenticator import client_login
from ottla.testing.broker import Broker

pytestmark = pytest.mark.skipif(bool(FOREIGN_BOOTSTRAP), reason="its listeners are not ours to set")

HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"  # of Java: no token without
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
SECRET = "a secret of the client"
REFRESH_MS = 1  # of the provider's keys: they are old at every login
WAIT_SECONDS_MAX = 20


class Provider:
    """Issues tokens to clients that know the secret, and publishes the key that signs them."""

    def __init__(self, folder: Path) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.asked = {"/keys": 0, "/token": 0}
        authority = Authority()
        self.authority_file = authority.certificate_pem(folder / "authority.pem")
        self._certificate_file = authority.issue("provider").pem(folder / "provider.pem")
        self.port = 0
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    def start(self) -> Self:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(provider.keys() if self.path == "/keys" else None)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                basic = base64.b64encode(f"alice:{SECRET}".encode()).decode()
                is_right = self.path == "/token" and self.headers["Authorization"] == f"Basic {basic}"
                self._answer(provider.grant() if is_right else None)

            def _answer(self, document: dict[str, Any] | None) -> None:
                if document is not None:
                    provider.asked[self.path] += 1
                body = json.dumps(document or {"error": "invalid_client"}).encode()
                self.send_response(200 if document is not None else 401)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._certificate_file)
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def keys(self) -> dict[str, Any]:
        algorithm = jwt.algorithms.ECAlgorithm(jwt.algorithms.ECAlgorithm.SHA256)
        return {"keys": [{**json.loads(algorithm.to_jwk(self.key.public_key())), "kid": "k", "use": "sig"}]}

    def grant(self) -> dict[str, Any]:
        now = int(time.time())
        claims = {"sub": "alice", "iss": self.url, "aud": "kafka", "iat": now, "exp": now + 300}
        token = jwt.encode(claims, self.key, algorithm="ES256", headers={"kid": "k"})
        return {"access_token": token, "token_type": "Bearer", "expires_in": 300}


class Place(NamedTuple):
    """A provider, and a broker that believes it."""

    provider: Provider
    broker: Broker

    def properties(self, secret: str = SECRET, trusts: str | None = None) -> dict[str, str]:
        options = f'clientId="alice" clientSecret="{secret}"'
        options += f' ssl.truststore.type="PEM" ssl.truststore.location="{trusts or self.provider.authority_file}"'
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": f"{self.provider.url}/token",
            "sasl.jaas.config": f"{MODULE} {options};",
        }

    def client(self, **words: str) -> Client:
        return Client(self.broker.bootstrap_servers, login=client_login(self.properties(**words)))

    def let_in_again(self) -> None:
        """Returns when the broker has read the keys again: after a failure it waits a little."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while True:
            try:
                with self.client() as client:
                    assert client.cluster().brokers
                    return
            except ClientError:
                assert time.monotonic() < deadline


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    provider = Provider(tmp_path_factory.mktemp("provider")).start()
    trusts = f'ssl.truststore.type="PEM" ssl.truststore.location="{provider.authority_file}"'
    broker = Broker(
        {
            "listeners": "SASL_PLAINTEXT://localhost:0",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
                f'{MODULE} clientId="alice" clientSecret="{SECRET}" {trusts};'
            ),
            "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
            "sasl.oauthbearer.jwks.endpoint.url": f"{provider.url}/keys",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms": REFRESH_MS,
            "sasl.oauthbearer.expected.issuer": provider.url,
            "sasl.oauthbearer.expected.audience": "kafka",
            "connection.failed.authentication.delay.ms": 0,
        },
    )
    try:
        with broker:
            yield Place(provider, broker)
            assert SECRET not in broker.logs
    finally:
        provider.stop()


def test_clients_get_their_tokens_and_brokers_the_keys(
    place: Place, kafka_jars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place.client() as client:
        assert client.cluster().brokers
    librdkafka_round_trip(place.broker.bootstrap_servers, b"native", **translate(place.properties()))
    config = tmp_path / "client.properties"
    properties = {**place.properties(), "sasl.login.callback.handler.class": HANDLER}
    config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={place.provider.url}/token"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", allowed)
    words = ("--bootstrap-server", place.broker.bootstrap_servers, "--command-config", str(config))
    with JavaTools(kafka_jars) as java:
        listed = java.run("kafka-topics.sh", *words, "--list")
    assert (listed.code, "t" in listed.out.splitlines()) == (0, True), listed.err
    assert all(place.provider.asked.values())


def test_without_the_provider_sessions_continue_and_issued_tokens_are_accepted(place: Place) -> None:
    login = client_login(place.properties())
    with Client(place.broker.bootstrap_servers, login=login) as client:
        assert client.cluster().brokers
        asked = dict(place.provider.asked)
        place.provider.stop()
        assert client.cluster().brokers, "an old login goes on"
        with Client(place.broker.bootstrap_servers, login=login) as other:
            assert other.cluster().brokers, "the token is still good, and so are the keys"
        noted(place.broker, "cannot read the keys of the identity provider")
        with (
            pytest.raises(ClientError, match=r"no token: .* cannot be read: Connection refused"),
            place.client() as new,
        ):
            new.cluster()
        place.provider.key = ec.generate_private_key(ec.SECP256R1())  # it comes back with another key
        place.provider.start()
        place.let_in_again()
        assert place.provider.asked["/keys"] > asked["/keys"]


def test_an_untrusted_certificate_or_a_wrong_secret_gives_no_token(place: Place, tmp_path: Path) -> None:
    other = Authority().certificate_pem(tmp_path / "other.pem")
    with (
        pytest.raises(ClientError, match=r"no token: .* TLS: .*(not trusted|certificate)") as untrusted,
        place.client(trusts=other) as client,
    ):
        client.cluster()
    with pytest.raises(ClientError, match="answers with status 401"), place.client(secret="guess") as client:
        client.cluster()
    assert "guess" not in str(untrusted.value)
