"""Ids: UUIDv7 outside, 16 bytes inside."""

import secrets


def new_id(now_ms: int) -> bytes:
    """A UUIDv7 (RFC 9562 section 5.7) as 16 bytes; it sorts by time but is no secret and no order."""
    head = now_ms.to_bytes(6, "big")
    tail = bytearray(secrets.token_bytes(10))
    tail[0] = 0x70 | (tail[0] & 0x0F)
    tail[2] = 0x80 | (tail[2] & 0x3F)
    return head + bytes(tail)


def id_text(value: bytes) -> str:
    """The usual text form of a 16-byte id."""
    h = value.hex()
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


def parse_id(text: str) -> bytes | None:
    """The 16 bytes of an id's text form, None when it is none."""
    if len(text) != 36 or not text[8] == text[13] == text[18] == text[23] == "-":
        return None
    try:
        value = bytes.fromhex(text.replace("-", ""))
    except ValueError:
        return None
    return value if len(value) == 16 else None
