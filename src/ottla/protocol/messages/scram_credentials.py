"""Passwords of users for SASL/SCRAM: who has some, give and take them (KIP-554)."""

from __future__ import annotations

from ottla.protocol.schema import Int8, Int16, Int32, message, part, wire


@part
class ScramUserName:
    name: str


@message(api_key=50, versions="0", flexible=0)
class DescribeUserScramCredentialsRequest:
    """DescribeUserScramCredentials (key 50), v0. Null or no users mean all of them."""

    users: list[ScramUserName] | None = wire(nullable=0, default=None)


@part
class ScramCredentialInfo:
    mechanism: Int8  # 1 SCRAM-SHA-256, 2 SCRAM-SHA-512
    iterations: Int32


@part
class ScramUserResult:
    user: str
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)
    credential_infos: list[ScramCredentialInfo] = wire(default_factory=list)


@message(api_key=50, versions="0", flexible=0)
class DescribeUserScramCredentialsResponse:
    """DescribeUserScramCredentials (key 50), v0. Passwords are never sent."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)
    results: list[ScramUserResult] = wire(default_factory=list)


@part
class ScramCredentialDeletion:
    name: str
    mechanism: Int8


@part
class ScramCredentialUpsertion:
    """The password salted by the client: the broker never sees the password itself."""

    name: str
    mechanism: Int8
    iterations: Int32
    salt: bytes
    salted_password: bytes


@message(api_key=51, versions="0", flexible=0)
class AlterUserScramCredentialsRequest:
    """AlterUserScramCredentials (key 51), v0."""

    deletions: list[ScramCredentialDeletion] = wire(default_factory=list)
    upsertions: list[ScramCredentialUpsertion] = wire(default_factory=list)


@part
class ScramAlterationResult:
    user: str
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)


@message(api_key=51, versions="0", flexible=0)
class AlterUserScramCredentialsResponse:
    """AlterUserScramCredentials (key 51), v0."""

    throttle_time_ms: Int32 = 0
    results: list[ScramAlterationResult] = wire(default_factory=list)
