"""Many logins: TLS handshakes, and SCRAM-SHA-256 as in RFC 5802."""

import base64
import functools
import hashlib
import hmac
import secrets
import struct

from bench import wire
from bench.errors import BenchError
from bench.figures import Figures
from bench.loads.threads import Load, run_together
from bench.raw_client import Connection, Target

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
MECHANISM = "SCRAM-SHA-256"
NO_BINDING = base64.b64encode(b"n,,").decode()


def come_in(target: Target, count: int, connections: int) -> Figures:
    """So many clients one after the other on each of so many threads; each login ends with the answer to Metadata."""

    def set_up(_: int) -> Load:
        def load() -> None:
            for _ in range(count // connections):
                with Connection(target) as connection:
                    if target.user:
                        log_in(connection, target.user, target.password)
                    brokers, _partitions = wire.read_metadata(connection.call(wire.metadata_request([])))
                    if not brokers:
                        raise BenchError("a client that came in is not answered")

        return load

    meter = run_together(target.pid, set_up, connections)
    return meter.figures(requests=count // connections * connections)


def log_in(connection: Connection, user: str, password: str) -> None:
    answer = connection.call(wire.frame(SASL_HANDSHAKE, 1, wire.string(MECHANISM), False))
    if error := struct.unpack_from(">h", answer, 4)[0]:
        raise BenchError(f"SaslHandshake was answered with error {error}")
    nonce = secrets.token_hex(12)
    first = f"n={user},r={nonce}"
    challenge = _exchange(connection, f"n,,{first}")
    fields = dict(part.split("=", 1) for part in challenge.split(","))
    unsigned = f"c={NO_BINDING},r={fields['r']}"
    salted = _salted(password, fields["s"], int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(client_key).digest(), f"{first},{challenge},{unsigned}".encode(), "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    _exchange(connection, f"{unsigned},p={proof}")


@functools.cache
def _salted(password: str, salt: str, iterations: int) -> bytes:
    """Computed once: the broker is measured, not the client."""
    return hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(salt), iterations)


def _exchange(connection: Connection, token: str) -> str:
    data = token.encode()
    answer = connection.call(wire.frame(SASL_AUTHENTICATE, 0, struct.pack(">i", len(data)) + data, False))
    error, message_bytes = struct.unpack_from(">hh", answer, 4)
    if error:
        raise BenchError(f"SaslAuthenticate was answered with error {error}")
    position = 8 + max(0, message_bytes)
    size = struct.unpack_from(">i", answer, position)[0]
    return answer[position + 4 : position + 4 + size].decode()
