"""The guard for every outgoing request to an address that somebody else chose."""

from farhand.egress.addresses import check_address, opens_nothing
from farhand.egress.body import Sink, utf8_boundary
from farhand.egress.client import check_url, request
from farhand.egress.connect import TlsInfo, tls_context
from farhand.egress.errors import CODES, Code, EgressError, Source
from farhand.egress.headers import Head
from farhand.egress.payload import BROWSER_USER_AGENT, FetchedPayload, fetch_payload
from farhand.egress.policy import EgressPolicy
from farhand.egress.ranges import RangeResult
from farhand.egress.receive import Response, Timings
from farhand.egress.redirects import Redirect
from farhand.egress.resolve import Resolver, SystemResolver
from farhand.egress.url import Url, parse_url

__all__ = [
    "BROWSER_USER_AGENT",
    "CODES",
    "Code",
    "EgressError",
    "EgressPolicy",
    "FetchedPayload",
    "Head",
    "RangeResult",
    "Redirect",
    "Resolver",
    "Response",
    "Sink",
    "Source",
    "SystemResolver",
    "Timings",
    "TlsInfo",
    "Url",
    "check_address",
    "check_url",
    "fetch_payload",
    "opens_nothing",
    "parse_url",
    "request",
    "tls_context",
    "utf8_boundary",
]
