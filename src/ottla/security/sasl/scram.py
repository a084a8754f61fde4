"""SASL/SCRAM-SHA-256 and -512 (RFC 5802, 7677): both sides prove that they know the password without sending it.

Rules:
1. An unknown user also gets a salt, always the same for the same name, and is rejected only with the last message:
   clients cannot find out which names exist.
2. Nonces are checked, and a proof is compared in constant time.
3. A client with `tokenauth=true` logs in with a delegation token (KIP-48): its user name is the id of the token. It
   becomes the token's owner until the token expires.
4. A client rejects too few iterations (an attacker could crack the hash) and too many (the client would be blocked).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from ottla.security.sasl.exchange import Identity, LoginError
from ottla.security.scram_credentials import (
    HASHES,
    ITERATIONS_MIN,
    SALT_BYTES,
    ScramCredential,
    credential_from_salted,
    salted_password,
)

CLIENT_ITERATIONS_MAX: Final = 1_000_000
NONCE_BYTES: Final = 24
TOKEN_EXTENSION: Final = "tokenauth"  # noqa: S105 - a name
_ADDED: Final = r"(?:,[A-Za-z]+=[^,\0]+)*"
_CLIENT_FIRST: Final = re.compile(rf"(n,(?:a=([^,\0]+))?,)(n=([^,\0]*),r=([\x21-\x2b\x2d-\x7e]+)({_ADDED}))", re.DOTALL)
_CLIENT_FINAL: Final = re.compile(
    rf"(c=([A-Za-z0-9+/=]+),r=([\x21-\x2b\x2d-\x7e]+){_ADDED}),p=([A-Za-z0-9+/=]+)", re.DOTALL
)
_SERVER_FIRST: Final = re.compile(rf"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/=]+),i=([0-9]{{1,9}}){_ADDED}", re.DOTALL)
_SERVER_FINAL: Final = re.compile(rf"(?:v=([A-Za-z0-9+/=]+)|e=([^,\0]*)){_ADDED}", re.DOTALL)
_PLAIN_BINDING: Final = "n,,"


class TokenCredential(NamedTuple):
    """The data for the check of a delegation token."""

    credential: ScramCredential
    owner: str  # including its type
    expires_ms: int


class Credentials(Protocol):
    """The credentials of the broker. Thread-safe."""

    @property
    def has_tokens(self) -> bool:
        """Whether logins with tokens are possible; their check takes milliseconds."""
        ...

    def find(self, mechanism: str, name: str) -> ScramCredential | None: ...

    def any_credential(self, mechanism: str) -> ScramCredential | None:
        """Return an existing credential: fake ones must look like it."""
        ...

    def find_token(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """Return the credential of a delegation token that is currently valid."""
        ...


class ScramServer:
    """The broker side."""

    is_refused = False

    def __init__(
        self, mechanism: str, credentials: Credentials, secret: bytes, make_nonce: Callable[[], str] | None = None
    ) -> None:
        """`secret` generates the salts of unknown users."""
        self.identity: Identity | None = None
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._credentials = credentials
        self._secret = secret
        self._make_nonce = make_nonce or (lambda: secrets.token_urlsafe(NONCE_BYTES))
        self._name: str | None = None
        self._credential: ScramCredential | None = None
        self._is_known = False
        self._token: TokenCredential | None = None
        self._is_token = False
        self._binding = ""
        self._nonce = ""
        self._first = ""  # both first messages, as signed
        self._is_over = False

    @property
    def is_non_blocking(self) -> bool:
        """Whether the next step does not block. A few hashes do not: the expensive part is the client's. But the
        credential of a token may have to be computed.
        """
        return self._name is not None or not self._credentials.has_tokens

    def claimed_user(self, token: bytes) -> str | None:  # noqa: ARG002 - a ticket names its user when it is opened
        if self._name is None:
            return None
        return f"delegation token {self._name}" if self._is_token else self._name

    def step(self, token: bytes) -> bytes:
        if self._is_over:
            raise LoginError("a token after the last one")
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise LoginError("the token is not UTF-8") from None
        return self._on_first(text) if self._name is None else self._on_final(text)

    def _on_first(self, text: str) -> bytes:
        match = _CLIENT_FIRST.fullmatch(text)
        if match is None:
            raise LoginError("the first message is not a valid SCRAM message")
        self._binding, authorization, bare, escaped, nonce, added = match.groups()
        name = unescape(escaped)
        if not name:
            raise LoginError("no name")
        if authorization is not None and unescape(authorization) != name:
            told = "Authentication failed: Client requested an authorization id that is different from username"
            raise LoginError(f"{name[:100]!r} sent another authorization id", told)
        self._name = name
        self._is_token = has_tokenauth(added)
        if self._is_token:
            self._token = self._credentials.find_token(self._mechanism, name)
            found = self._token.credential if self._token is not None else None
        else:
            found = self._credentials.find(self._mechanism, name)
        self._is_known = found is not None
        self._credential = found if found is not None else self._dummy_credential(name)
        self._nonce = nonce + self._make_nonce()
        salt = base64.b64encode(self._credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._first = f"{bare},{answer}"
        return answer.encode()

    def _dummy_credential(self, name: str) -> ScramCredential:
        # All tokens have the same form.
        like = self._credentials.any_credential(self._mechanism) if not self._is_token else None
        size = len(like.salt) if like is not None else SALT_BYTES
        salt = hashlib.shake_256(self._secret + self._mechanism.encode() + b"\0" + name.encode()).digest(size)
        return credential_from_salted(
            self._mechanism, self._secret, salt, like.iterations if like is not None else ITERATIONS_MIN
        )

    def _on_final(self, text: str) -> bytes:
        self._is_over = True
        match = _CLIENT_FINAL.fullmatch(text)
        if match is None:
            raise LoginError("the final message is not a valid SCRAM message")
        without_proof, binding, nonce, proof = match.groups()
        assert self._credential is not None, "the first message came before"
        if not hmac.compare_digest(nonce, self._nonce):
            raise LoginError("the nonce does not match")
        if decode_base64(binding).decode("utf-8", "replace") not in (self._binding, _PLAIN_BINDING):
            raise LoginError("the channel binding does not match")
        message = f"{self._first},{without_proof}".encode()
        signature = hmac.digest(self._credential.stored_key, message, self._hash)
        given = decode_base64(proof)
        if len(given) != len(signature):
            raise LoginError("the proof has a wrong length")
        client_key = bytes(a ^ b for a, b in zip(given, signature, strict=True))
        stored_key = hashlib.new(self._hash, client_key).digest()
        is_right = hmac.compare_digest(stored_key, self._credential.stored_key)
        if not is_right or not self._is_known:
            raise LoginError(self._failure_reason())
        token = self._token
        self.identity = (
            Identity(token.owner, token.expires_ms, is_delegated=True)
            if token is not None
            else Identity(f"User:{self._name}")
        )
        return b"v=" + base64.b64encode(hmac.digest(self._credential.server_key, message, self._hash))

    def _failure_reason(self) -> str:
        name = (self._name or "")[:100]
        if not self._is_token:
            return f"wrong password, or unknown user {name!r}"
        if self._token is None:
            return f"there is no delegation token {name!r}, or it has expired"
        return f"not the HMAC of delegation token {name!r}: do all brokers have the same delegation.token.secret.key?"


class ScramClient:
    """The client side."""

    is_non_blocking = False  # PBKDF2

    def __init__(
        self,
        mechanism: str,
        name: str,
        password: str,
        make_nonce: Callable[[], str] | None = None,
        *,
        is_token: bool = False,
    ) -> None:
        """`is_token`: the name is the id of a delegation token, and the password its HMAC."""
        self.is_done = False
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = (make_nonce or (lambda: secrets.token_urlsafe(NONCE_BYTES)))()
        self._bare = f"n={escape(name)},r={self._nonce}" + (f",{TOKEN_EXTENSION}=true" if is_token else "")
        self._expected: bytes | None = None  # the expected proof of the server

    def first(self) -> bytes:
        return f"{_PLAIN_BINDING}{self._bare}".encode()

    def step(self, token: bytes) -> bytes:
        text = token.decode("utf-8", "replace")
        return self._on_first(text) if self._expected is None else self._on_final(text, self._expected)

    def _on_first(self, text: str) -> bytes:
        match = _SERVER_FIRST.fullmatch(text)
        if match is None:
            raise LoginError("the broker's first message is not a valid SCRAM message")
        nonce, salt, iterations = match[1], decode_base64(match[2]), int(match[3])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise LoginError("the broker's nonce does not start with the client's")
        if not ITERATIONS_MIN <= iterations <= CLIENT_ITERATIONS_MAX:
            raise LoginError(f"Invalid iterations {iterations} for {self._mechanism}")
        binding = base64.b64encode(_PLAIN_BINDING.encode()).decode()
        without_proof = f"c={binding},r={nonce}"
        message = f"{self._bare},{text},{without_proof}".encode()
        salted = salted_password(self._mechanism, self._password, salt, iterations)
        credential = credential_from_salted(self._mechanism, salted, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        signature = hmac.digest(credential.stored_key, message, self._hash)
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True)))
        self._expected = hmac.digest(credential.server_key, message, self._hash)
        return without_proof.encode() + b",p=" + proof

    def _on_final(self, text: str, expected: bytes) -> bytes:
        self.is_done = True
        match = _SERVER_FINAL.fullmatch(text)
        if match is None or match[1] is None:
            raise LoginError(f"the broker refuses: {match[2] if match is not None else 'no SCRAM'}")
        if not hmac.compare_digest(decode_base64(match[1]), expected):
            raise LoginError("the broker failed to prove that it knows the password: it may be an impostor")
        return b""


def has_tokenauth(added: str) -> bool:
    """Return whether the extensions of a first message announce a delegation token."""
    extensions = dict(each.split("=", 1) for each in added.split(",") if each)
    return extensions.get(TOKEN_EXTENSION, "").lower() == "true"


def escape(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def unescape(text: str) -> str:
    name = text.replace("=2C", ",").replace("=3D", "\0")
    if "=" in name:
        raise LoginError("a name with a bare =")
    return name.replace("\0", "=")


def decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise LoginError("invalid base64") from None
