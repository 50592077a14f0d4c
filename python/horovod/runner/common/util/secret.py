"""Keys, and the digests of messages under them."""

from __future__ import annotations

import hashlib
import hmac
import secrets

__all__ = ["DIGEST_LENGTH", "SECRET_LENGTH", "check_digest", "compute_digest", "make_secret_key"]

SECRET_LENGTH = 32  # bytes
DIGEST_LENGTH = 32


def make_secret_key() -> bytes:
    """A new random key of 32 bytes."""
    return secrets.token_bytes(SECRET_LENGTH)


def compute_digest(key: bytes, message: bytes) -> bytes:
    """The HMAC-SHA256 of `message` under `key`: 32 bytes."""
    return hmac.new(key, message, hashlib.sha256).digest()


def check_digest(key: bytes, message: bytes, digest: bytes) -> bool:
    """Whether `digest` is that of `message` under `key`. Compares in constant time."""
    return hmac.compare_digest(compute_digest(key, message), digest)
