"""The messages of the wire as the floor reads them and the load generator reads the replies.

Written apart from `farhand.protocol` on purpose: a bench that shared the product's types would not notice
a change of the wire.
"""

import base64
from typing import Any

import msgspec

Id = int | str


class Submit(msgspec.Struct):
    printer_id: Id
    type: str
    content: str | None = None


class SubmitMany(msgspec.Struct):
    jobs: list[Submit]


class Claim(msgspec.Struct):
    poll_id: str
    lanes: list[Id] | None = None
    max: int = 1
    accept: bool = False
    wait_ms: int = 0


class Outcome(msgspec.Struct):
    ok: bool
    error: str | None = None
    lease_token: str | None = None
    evidence: str | None = None
    next: Claim | None = None


class OutcomeOf(msgspec.Struct):
    job_id: Id
    ok: bool
    lease_token: str | None = None
    evidence: str | None = None


class OutcomeMany(msgspec.Struct):
    results: list[OutcomeOf]
    next: Claim | None = None


class PrinterName(msgspec.Struct):
    name: str
    can_pdf: bool = False


class Register(msgspec.Struct):
    name: str
    printers: list[PrinterName]


class Registered(msgspec.Struct):
    printer_ids: list[Id]


class Submitted(msgspec.Struct):
    job_id: Id


class SubmittedMany(msgspec.Struct):
    items: list[Submitted]


class Claimed(msgspec.Struct):
    job_id: Id


class Payload(msgspec.Struct):
    size: int
    base64: str | None = None


class Offer(msgspec.Struct):
    job_id: Id
    lease_token: str
    payload: Payload


class Offers(msgspec.Struct):
    jobs: list[Offer]


class Settled(msgspec.Struct):
    state: str
    next: Offers | None = None


class Item(msgspec.Struct):
    state: str | None = None
    status: int | None = None
    detail: Any = None


class SettledMany(msgspec.Struct):
    items: list[Item]
    next: Offers | None = None


class Status(msgspec.Struct):
    state: str


LABEL = (
    b"^XA^FO40,40^A0N,40,40^FDShip to: 12 Harbour Street, Dock 4^FS"
    b"^FO40,120^BCN,120,Y,N,N^FD0123456789AB^FS^XZ" + b" " * 36
)
CONTENT = base64.b64encode(LABEL).decode()
PARAMS = '{"instance":"customer-4711","number":"491701234567"}'
RESULT = '{"state":"open","profile":"Customer 4711"}'
