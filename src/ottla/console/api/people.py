"""Sessions, people, tokens, the audit trail."""

from __future__ import annotations

import asyncio
import re

import msgspec
from starlette.responses import Response

from ottla import __version__
from ottla.base.passwords import (
    PASSWORD_LENGTH_MAX,
    PASSWORD_LENGTH_MIN,
    hash_password,
    new_token,
    token_digest,
)
from ottla.console.api.call import Call
from ottla.console.api.errors import ApiError, bad_request, conflict, not_found
from ottla.console.auth import rights
from ottla.console.auth.authentication import WRONG_LINK
from ottla.console.auth.rights import Grant, Role
from ottla.console.store import BEGUN, DONE, Person, Tables, Token

ERROR_CODE = re.compile(r"[A-Z][A-Z0-9_]*")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")
AUDIT_PAGE_ROWS = 200
TOKENS_MAX = 1_000


class SessionAnswer(msgspec.Struct, frozen=True):
    """The caller. `person` is empty before sign-in. Without sign-in, POST takes the token of the link."""

    person: str
    is_sign_in_needed: bool
    is_admin: bool
    grants: list[Grant]
    version: str


class SignIn(msgspec.Struct, forbid_unknown_fields=True):
    """Name and password, or the token of a console without sign-in."""

    name: str = ""
    password: str = ""
    token: str = ""


class PersonRow(msgspec.Struct, frozen=True):
    name: str
    grants: list[Grant]


class PersonList(msgspec.Struct, frozen=True):
    people: list[PersonRow]


class PersonBody(msgspec.Struct, forbid_unknown_fields=True):
    """Without a password, the existing one remains."""

    grants: list[Grant]
    password: str | None = None


class NewPassword(msgspec.Struct, forbid_unknown_fields=True):
    old: str
    new: str


class TokenBody(msgspec.Struct, forbid_unknown_fields=True):
    label: str


class TokenRow(msgspec.Struct, frozen=True):
    """A token; `token` is returned only once, when it is created."""

    token_id: str
    label: str
    at_ms: int
    token: str | None = None


class TokenList(msgspec.Struct, frozen=True):
    tokens: list[TokenRow]


class AuditRow(msgspec.Struct, frozen=True):
    """`result`: done, failed, begun (without a recorded end), or ended (neither done nor failed)."""

    id: int
    at_ms: int
    person: str
    address: str
    cluster: str
    action: str
    target: str
    before: str | None
    after: str | None
    outcome: str
    result: str


class AuditList(msgspec.Struct, frozen=True):
    entries: list[AuditRow]


async def show_session(call: Call) -> SessionAnswer:
    caller = call.caller
    return SessionAnswer(
        caller.person,
        call.console.authenticator.is_needed,
        rights.has_role(caller.grants, Role.ADMIN),
        list(caller.grants),
        __version__ if caller.grants else "",
    )


async def sign_in(call: Call) -> Response:
    signing_in = call.console.authenticator
    if not signing_in.is_needed:
        if not signing_in.is_local_token(call.body.token):
            raise ApiError(401, "WRONG_TOKEN", WRONG_LINK)
        secret = signing_in.start_local_session(call.request)
        return Response(status_code=204, headers={"Set-Cookie": signing_in.cookie_header(secret)})
    old = call.request.cookies.get(signing_in.cookie_name, "")
    secret = await signing_in.sign_in(call.body.name, call.body.password, call.caller.address)
    signing_in.sessions.end(old)
    return Response(status_code=204, headers={"Set-Cookie": signing_in.cookie_header(secret)})


async def sign_out(call: Call) -> Response:
    signing_in = call.console.authenticator
    signing_in.sessions.end(call.request.cookies.get(signing_in.cookie_name, ""))
    return Response(status_code=204, headers={"Set-Cookie": signing_in.cookie_header("", 0)})


async def change_password(call: Call) -> None:
    signing_in = call.console.authenticator
    body: NewPassword = call.body
    person = await signing_in.verify_password(call.caller.person, body.old, call.caller.address)
    hashed = await _hash_checked(body.new)
    await call.console.store.run(Tables.put_person, person._replace(password=hashed))
    call.audit(person.name, after="password")
    signing_in.end_sessions(person.name)


async def list_people(call: Call) -> PersonList:
    return PersonList([PersonRow(each.name, each.grants) for each in await call.console.store.run(Tables.people)])


async def put_person(call: Call) -> PersonRow:
    body: PersonBody = call.body
    name = call.parameters["name"]
    if not NAME.fullmatch(name):
        raise bad_request("a name consists of at most 100 letters, digits, '.', '_', '@' and '-'")
    if any(grant.role not in rights.ROLES for grant in body.grants):
        raise bad_request("a role must be one of {0}", ", ".join(rights.ROLES))
    old = await _find_person(call, name)
    if old is None and body.password is None:
        raise bad_request("a new person needs a password")
    if old is not None and name == call.caller.person and not rights.has_role(body.grants, Role.ADMIN):
        raise ApiError(409, "LAST_ADMIN", "you would remove your own rights: ask another admin to do it")
    hashed = (
        await _hash_checked(body.password) if body.password is not None else old.password if old is not None else ""
    )
    call.audit(name, old.grants if old is not None else None, body.grants)
    await call.console.store.run(Tables.put_person, Person(name, hashed, body.grants))
    if name != call.caller.person or body.password is not None:
        call.console.authenticator.end_sessions(name)
    else:
        call.console.authenticator.sessions.change_grants(name, body.grants)
    return PersonRow(name, body.grants)


async def drop_person(call: Call) -> None:
    name = call.parameters["name"]
    old = await _find_person(call, name)
    if old is None:
        raise not_found("there is no person {0}", name)
    if name == call.caller.person:
        raise ApiError(409, "LAST_ADMIN", "you would lock yourself out: ask another admin to do it")
    call.audit(name, old.grants)
    await call.console.store.run(Tables.drop_person, name)
    call.console.authenticator.end_sessions(name)


async def list_tokens(call: Call) -> TokenList:
    tokens = await call.console.store.run(Tables.tokens)
    return TokenList(
        [TokenRow(each.digest[:16], each.label, each.at_ms) for each in tokens if each.person == call.caller.person]
    )


async def make_token(call: Call) -> TokenRow:
    if not call.console.authenticator.is_needed:
        raise ApiError(409, "NO_SIGN_IN", "sign-in is off: the API accepts the token of the console's link")
    if len(await call.console.store.run(Tables.tokens)) >= TOKENS_MAX:
        raise conflict("TOO_MANY", "there are {0} tokens already", TOKENS_MAX)
    words = new_token()
    token = Token(token_digest(words), call.caller.person, call.body.label[:100], call.console.clock.now_ms())
    await call.console.store.run(Tables.put_token, token)
    call.audit(f"token {token.label}")
    return TokenRow(token.digest[:16], token.label, token.at_ms, words)


async def drop_token(call: Call) -> None:
    for token in await call.console.store.run(Tables.tokens):
        if token.person == call.caller.person and token.digest.startswith(call.parameters["token"]):
            call.audit(f"token {token.label}")
            await call.console.store.run(Tables.drop_token, token.digest)
            call.console.authenticator.sessions.end_token(token.digest)
            return
    raise not_found("you have no such token")


async def list_audit(call: Call) -> AuditList:
    before = call.int_query("before", 0, 2**62)
    rows = await call.console.store.run(Tables.audit, AUDIT_PAGE_ROWS, before or None)
    return AuditList([AuditRow(number, *entry, result_of(entry.outcome)) for number, entry in rows])


def result_of(outcome: str) -> str:
    word = outcome.partition(":")[0]
    if word in (DONE, BEGUN):
        return word
    return "failed" if ERROR_CODE.fullmatch(word) else "ended"


async def _find_person(call: Call, name: str) -> Person | None:
    return next((each for each in await call.console.store.run(Tables.people) if each.name == name), None)


async def _hash_checked(password: str) -> str:
    if not PASSWORD_LENGTH_MIN <= len(password) <= PASSWORD_LENGTH_MAX:
        raise bad_request("a password must have {0} to {1} characters", PASSWORD_LENGTH_MIN, PASSWORD_LENGTH_MAX)
    return await asyncio.to_thread(hash_password, password)
