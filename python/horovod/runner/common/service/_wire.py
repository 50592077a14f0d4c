"""The protocol of a compute service: one request for each connection, authenticated in both directions.

    client -> service   client nonce (32 bytes), HMAC(key, "hello" + client nonce)
    service -> client   magic (8), server nonce (32)
    client -> service   length (4, big endian), JSON, HMAC(key, "request" + both nonces + JSON)
    service -> client   length, JSON, HMAC(key, "reply" + the request's HMAC + JSON)

Both nonces are fresh, so neither a request nor a reply can be replayed. Nothing is parsed before its HMAC was verified.
The client sends first, for two reasons. Its first message is usually there when the service accepts, so that a crowd of
strangers never has the time to push it out (_admission.py). And a service whose backlog overflows may not know of a
connection that its client holds for made; what the client sends, again and again, lets the two systems find that out.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from horovod.runner.common.util.secret import DIGEST_LENGTH, check_digest, compute_digest

MAGIC = b"HVDCOMP2"
NONCE_LENGTH = 32
GREETING_LENGTH = len(MAGIC) + NONCE_LENGTH
LONGEST_MESSAGE = 16 * 1024  # bytes of JSON
GREETING_DEADLINE_S = 30.0  # until a service on a busy host has accepted all who came before: its backlog is long
REQUEST_DEADLINE_S = 5.0  # to connect; for a request; twice for its reply, without what it waits for
LONGEST_WAIT_S = 24 * 3600.0

_LENGTH = struct.Struct("!I")
LENGTH_LENGTH = _LENGTH.size
SEAL_LENGTH = DIGEST_LENGTH
HELLO_LENGTH = NONCE_LENGTH + DIGEST_LENGTH


class BadMessage(Exception):
    """Bytes that no holder of the key has sent, or too many of them."""


def hello(key: bytes, client_nonce: bytes) -> bytes:
    return client_nonce + compute_digest(key, _hello_context(client_nonce))


def open_hello(key: bytes, hello_: bytes) -> bytes:
    """The client's nonce. BadMessage unless a holder of the key has made it, now or when somebody recorded it."""
    client_nonce, digest = hello_[:NONCE_LENGTH], hello_[NONCE_LENGTH:]
    if not check_digest(key, _hello_context(client_nonce), digest):
        raise BadMessage("wrong digest: the sender has another key")
    return client_nonce


def _hello_context(client_nonce: bytes) -> bytes:
    return b"hello\0\0\0" + client_nonce


def greeting(server_nonce: bytes) -> bytes:
    return MAGIC + server_nonce


def nonce_of(greeting_: bytes) -> bytes:
    """The server's nonce. BadMessage if the answer is not that of a compute service."""
    if not greeting_.startswith(MAGIC):
        raise BadMessage(f"no compute service answers there, it begins with {greeting_[:8]!r}")
    return greeting_[len(MAGIC) :]


def _seal(key: bytes, context: bytes, message: dict[str, Any]) -> tuple[bytes, bytes]:
    body = json.dumps(message).encode()
    if len(body) > LONGEST_MESSAGE:
        raise ValueError(f"a message of {len(body)} bytes is too long, {LONGEST_MESSAGE} are allowed")
    digest = compute_digest(key, context + body)
    return _LENGTH.pack(len(body)) + body + digest, digest


def request_context(server_nonce: bytes, client_nonce: bytes) -> bytes:
    return b"request\0" + server_nonce + client_nonce


def reply_context(request_digest: bytes) -> bytes:
    return b"reply\0\0\0" + request_digest


def seal_request(key: bytes, server_nonce: bytes, client_nonce: bytes, message: dict[str, Any]) -> tuple[bytes, bytes]:
    """The bytes to send, and the digest that the reply refers to. ValueError for a message that is too long."""
    return _seal(key, request_context(server_nonce, client_nonce), message)


def seal_reply(key: bytes, request_digest: bytes, message: dict[str, Any]) -> bytes:
    return _seal(key, reply_context(request_digest), message)[0]


def body_length(header: bytes) -> int:
    """The length that a frame begins with. BadMessage before anything is allocated for one that is too long."""
    (length,) = _LENGTH.unpack(header)
    if length > LONGEST_MESSAGE:
        raise BadMessage(f"a message of {length} bytes is announced, {LONGEST_MESSAGE} are allowed")
    return int(length)


def open_sealed(key: bytes, context: bytes, body_and_digest: bytes) -> tuple[dict[str, Any], bytes]:
    """The message and its digest. BadMessage unless a holder of the key has made it for this context."""
    body, digest = body_and_digest[:-DIGEST_LENGTH], body_and_digest[-DIGEST_LENGTH:]
    if not check_digest(key, context + body, digest):
        raise BadMessage("wrong digest: the sender has another key")
    message = json.loads(body)
    if not isinstance(message, dict):
        raise BadMessage(f"expected an object, got a {type(message).__name__}")
    return message, digest
