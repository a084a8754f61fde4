"""Envelope (key 58), v0: a client request forwarded by another broker (KIP-590).

It is handled as if the client had sent it here: its principal and address are authorized, and the response is encoded
for it. Only APIs of the controller are accepted inside an Envelope.
"""

from __future__ import annotations

import logging
from typing import Any

from ottla.base.errors import Error
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.cluster.forwarding import decode_host, decode_principal, is_not_controller
from ottla.broker.context import Context
from ottla.broker.offload import LONG_REQUEST_BYTES, free_rows, is_long, run_in_worker
from ottla.broker.responder import InnerResponder
from ottla.network.connection import ConnectedClient
from ottla.protocol.apis import APIS
from ottla.protocol.codec import ProtocolError, decode
from ottla.protocol.headers import decode_request_header
from ottla.protocol.messages.inter_broker import EnvelopeRequest, EnvelopeResponse

logger = logging.getLogger(__name__)


async def handle(request: EnvelopeRequest, context: Context) -> EnvelopeResponse:
    if not context.is_authorized(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return EnvelopeResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
    cluster = context.broker.membership
    if cluster is None or not cluster.is_controller:
        return EnvelopeResponse(error_code=Error.NOT_CONTROLLER)
    try:
        sender = ConnectedClient(decode_host(request.client_host_address), 0, context.listener_name)
        sender.principal, sender.is_delegated = decode_principal(request.request_principal or b"")
    except ProtocolError:
        return EnvelopeResponse(error_code=Error.PRINCIPAL_DESERIALIZATION_FAILURE)
    try:
        return await open_envelope(memoryview(request.request_data), sender, context)
    except ProtocolError as problem:
        logger.info("an envelope from %s contains no valid request: %s", context.client_host, problem)
        return EnvelopeResponse(error_code=Error.INVALID_REQUEST)


async def open_envelope(data: memoryview, sender: ConnectedClient, context: Context) -> EnvelopeResponse:
    header = decode_request_header(data)
    row = context.broker.apis.get(header.api_key)
    if row is None or row.make_error_response is None:
        return EnvelopeResponse(error_code=Error.INVALID_REQUEST)
    api = APIS[header.api_key]
    if not api.has_version(header.api_version):
        return EnvelopeResponse(error_code=Error.UNSUPPORTED_VERSION)
    workers = context.broker.workers
    if len(data) > LONG_REQUEST_BYTES:
        inner, _ = await run_in_worker(workers, decode, api.request, header.api_version, data, header.body_position)
    else:
        inner, _ = decode(api.request, header.api_version, data, header.body_position)
    responder = context.responder.make_inner_responder(
        header.api_key, api.name, header.api_version, header.correlation_id
    )
    asker = Context(
        context.broker,
        responder,
        sender,
        header.api_key,
        header.api_version,
        header.correlation_id,
        header.client_id,
        is_forwarded=True,
    )
    response = await responder.result_of(row.handle(inner, asker))
    context.broker.counters.note_answer(header.api_key, response)
    if len(data) > LONG_REQUEST_BYTES:
        await run_in_worker(workers, free_rows, inner)
    if is_long(response):
        return await run_in_worker(workers, envelope_response, response, responder)
    return envelope_response(response, responder)


def envelope_response(response: Any, responder: InnerResponder) -> EnvelopeResponse:
    if is_not_controller(
        response
    ):  # the forwarding broker finds the new controller; the client must not see this error
        return EnvelopeResponse(error_code=Error.NOT_CONTROLLER)
    return EnvelopeResponse(response_data=responder.encode_reply(response))
