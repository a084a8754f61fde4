"""A client with its own source address: rules about hosts distinguish it without a login, here and on Apache Kafka."""

import itertools
import socket
import struct
from typing import Any, Self

from ottla.base.security import ANONYMOUS, CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from ottla.protocol.apis import ALL_APIS
from ottla.protocol.codec import decode, encode
from ottla.protocol.headers import encode_request_header, response_header_bytes
from ottla.protocol.messages.acls import AclCreation, CreateAclsRequest, DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.schema import layout_of

ADMINISTRATOR, STRANGER = "127.0.0.1", "127.0.0.2"
ANSWER_SECONDS_MAX = 20.0

Right = tuple[Operation, ResourceType, str]


class Asker:
    """Sends requests from one of this machine's addresses."""

    def __init__(self, bootstrap: str, host: str = STRANGER) -> None:
        server, port = bootstrap.rsplit(":", 1)
        self.host = host
        self.socket = socket.create_connection((server, int(port)), ANSWER_SECONDS_MAX, source_address=(host, 0))
        self._numbers = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, request: Any, version: int) -> Any:
        """The answer; None if the connection is closed instead."""
        key = layout_of(type(request)).api_key
        header = encode_request_header(key, version, next(self._numbers), "asker")
        payload = header + bytes(encode(request, version))
        self.socket.sendall(struct.pack("!i", len(payload)) + payload)
        size = self._read(4)
        if not size:
            return None
        frame = self._read(struct.unpack("!i", size)[0])
        return decode(ALL_APIS[key].response, version, memoryview(frame), response_header_bytes(key, version))[0]

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                return b""
            data += more
        return data


def give(administrator: Asker, *rights: Right, host: str = STRANGER, permission: Permission = Permission.ALLOW) -> None:
    rows = [
        AclCreation(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=PatternType.LITERAL,
            principal=ANONYMOUS,
            host=host,
            operation=operation,
            permission_type=permission,
        )
        for operation, kind, name in rights
    ]
    answer = administrator.ask(CreateAclsRequest(creations=rows), 3)
    assert [row.error_code for row in answer.results] == [0] * len(rows), answer


def take_all(administrator: Asker, host: str = STRANGER) -> None:
    wanted = DeleteAclsFilter(
        resource_type_filter=1, pattern_type_filter=1, host_filter=host, operation=1, permission_type=1
    )
    answer = administrator.ask(DeleteAclsRequest(filters=[wanted]), 3)
    assert answer.filter_results[0].error_code == 0, answer


def close_to_others(administrator: Asker) -> None:
    """From now on only requests from the administrator's address are allowed."""
    kinds = [kind for kind in ResourceType if kind > ResourceType.ANY]
    names = [CLUSTER_NAME if kind is ResourceType.CLUSTER else "*" for kind in kinds]
    rights = [(Operation.ALL, kind, name) for kind, name in zip(kinds, names, strict=True)]
    give(administrator, *rights, host=ADMINISTRATOR)


def errors_in(answer: Any) -> list[str]:
    """All error codes of an answer that are none, with the names of what they are about."""
    return sorted(_errors(answer, ""))


def _errors(value: Any, where: str) -> list[str]:
    if isinstance(value, list):
        return [found for row in value for found in _errors(row, where)]
    if not hasattr(type(value), "__slots__") and not hasattr(value, "__dict__"):
        return []
    fields = {name: getattr(value, name, None) for name in dir(value) if not name.startswith("_")}
    names = [fields[name] for name in NAMES if isinstance(fields.get(name), str) and fields[name]]
    here = "/".join([where, *names]).strip("/")
    found = [
        f"{here}:{fields[name]}"
        for name in fields
        if name.endswith("error_code") and isinstance(fields[name], int) and fields[name]
    ]
    for each in fields.values():
        if isinstance(each, list):
            found += _errors(each, here)
    return found


NAMES = ("name", "topic", "topic_name", "group_id", "transactional_id", "resource_name", "key")
