"""Envelope (key 58), v0: a client's request that another broker passes on (KIP-590).

It is answered as if its sender had asked here: his name and his address count for what he may do, and the answer is
encoded for him. Only what the table of APIs says to be the controller's is taken out of an envelope.
"""

from __future__ import annotations

import logging
from typing import Any

from ottla.base.errors import Error
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.cluster.forwarding import decode_host, decode_principal, says_not_controller
from ottla.broker.context import Context
from ottla.broker.long_messages import LONG_BYTES, free, in_worker, is_long
from ottla.broker.responder import InnerResponder
from ottla.network.client_facts import ClientFacts
from ottla.protocol.apis import APIS
from ottla.protocol.codec import ProtocolError, decode
from ottla.protocol.headers import decode_request_header
from ottla.protocol.messages.inter_broker import EnvelopeRequest, EnvelopeResponse

logger = logging.getLogger(__name__)


async def handle(request: EnvelopeRequest, context: Context) -> EnvelopeResponse:
    if not context.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return EnvelopeResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
    cluster = context.broker.cluster
    if cluster is None or not cluster.is_controller:
        return EnvelopeResponse(error_code=Error.NOT_CONTROLLER)
    try:
        sender = ClientFacts(decode_host(request.client_host_address), 0, context.listener_name)
        sender.principal, sender.is_delegated = decode_principal(request.request_principal or b"")
    except ProtocolError:
        return EnvelopeResponse(error_code=Error.PRINCIPAL_DESERIALIZATION_FAILURE)
    try:
        return await open_envelope(memoryview(request.request_data), sender, context)
    except ProtocolError as problem:
        logger.info("an envelope from %s holds no request: %s", context.client_host, problem)
        return EnvelopeResponse(error_code=Error.INVALID_REQUEST)


async def open_envelope(data: memoryview, sender: ClientFacts, context: Context) -> EnvelopeResponse:
    header = decode_request_header(data)
    row = context.broker.apis.get(header.api_key)
    if row is None or row.refuse is None:
        return EnvelopeResponse(error_code=Error.INVALID_REQUEST)
    api = APIS[header.api_key]
    if not api.has_version(header.api_version):
        return EnvelopeResponse(error_code=Error.UNSUPPORTED_VERSION)
    workers = context.broker.workers
    if len(data) > LONG_BYTES:
        inner, _ = await in_worker(workers, decode, api.request, header.api_version, data, header.body_position)
    else:
        inner, _ = decode(api.request, header.api_version, data, header.body_position)
    responder = context.responder.inner(header.api_key, api.name, header.api_version, header.correlation_id)
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
    response = await responder.answer_to(row.handle(inner, asker))
    context.broker.counters.note_answer(header.api_key, response)
    if len(data) > LONG_BYTES:
        await in_worker(workers, free, inner)
    if is_long(response):
        return await in_worker(workers, sealed, response, responder)
    return sealed(response, responder)


def sealed(response: Any, responder: InnerResponder) -> EnvelopeResponse:
    if says_not_controller(response):  # so that whoever passed it on asks the next one, and not the client
        return EnvelopeResponse(error_code=Error.NOT_CONTROLLER)
    return EnvelopeResponse(response_data=responder.encoded(response))
