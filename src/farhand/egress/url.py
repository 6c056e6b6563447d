"""The one URL parser of every outgoing request: what it returns is what is connected to."""

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import quote

import idna

from farhand.egress.errors import EgressError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

URL_CHARACTERS_MAX = 8192
DEFAULT_PORTS = {"http": 80, "https": 443}

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_REFUSED = re.compile("[\x00-\x20\x7f-\x9f\\\\\ud800-\udfff]")
# What browsers leave alone in a path or query; everything else is percent-encoded as UTF-8.
_TARGET_SAFE = "!$%&'()*+,/:;=?@[]^_|~-."


@dataclass(frozen=True, slots=True, kw_only=True)
class Url:
    """A checked http or https URL.

    `host` is lower-case ASCII without a trailing dot, or an address in its canonical form (no
    brackets); `address` is set when the host is an address. `target` is path and query.
    """

    scheme: str
    host: str
    address: Address | None
    port: int
    target: str

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port: what credentials belong to."""
        return (self.scheme, self.host, self.port)

    @property
    def authority(self) -> str:
        """The value of the Host field: the port only where it is not the scheme's own."""
        host = f"[{self.host}]" if isinstance(self.address, ipaddress.IPv6Address) else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"


def parse_url(text: str) -> Url:
    """Parse an absolute URL strictly.

    The fragment is dropped. Raises EgressError `bad-url` for anything that two parsers could
    read differently: userinfo, whitespace, controls, backslashes, odd spellings of addresses.
    """
    _refuse_characters(text)
    match = _SCHEME.match(text)
    if match is None:
        raise _bad("the URL has no scheme; start it with https://")
    scheme = match[1].lower()
    if scheme not in DEFAULT_PORTS:
        raise _bad("only http and https URLs can be requested")
    rest = text[match.end() :].partition("#")[0]
    if not rest.startswith("//"):
        raise _bad("the URL needs two slashes after its scheme, like https://example.com/")
    authority, target = _split_authority(rest[2:])
    host_text, port = _split_port(authority, DEFAULT_PORTS[scheme])
    host, address = _canonical_host(host_text)
    return Url(scheme=scheme, host=host, address=address, port=port, target=_encode(target))


def join_url(base: Url, reference: str) -> Url:
    """Resolve a redirect's Location against the URL that was asked for (RFC 3986 section 5.2).

    Raises EgressError `bad-url` as `parse_url` does.
    """
    _refuse_characters(reference)
    reference = reference.partition("#")[0]
    if _SCHEME.match(reference):
        return parse_url(reference)
    if reference.startswith("//"):
        return parse_url(f"{base.scheme}:{reference}")
    if not reference:
        return base
    path, mark, query = reference.partition("?")
    base_path = base.target.partition("?")[0]
    if not path:
        path = base_path
    elif path.startswith("/"):
        path = _without_dots(path)
    else:
        path = _without_dots(f"{base_path.rpartition('/')[0]}/{path}")
    return parse_url(f"{base.scheme}://{base.authority}{path}{mark}{query}")


def _bad(message: str) -> EgressError:
    return EgressError("bad-url", message, source="policy")


def _refuse_characters(text: str) -> None:
    if len(text) > URL_CHARACTERS_MAX:
        raise _bad(f"the URL is longer than {URL_CHARACTERS_MAX} characters; shorten it")
    if _REFUSED.search(text):
        raise _bad("the URL holds a space, a control character or a backslash; percent-encode it")


def _split_authority(rest: str) -> tuple[str, str]:
    end = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
    authority, target = rest[:end], rest[end:]
    if "@" in authority:
        raise _bad("the URL holds a user name or password; send them in an Authorization header")
    if not authority:
        raise _bad("the URL has no host")
    return authority, target if target.startswith("/") else f"/{target}"


def _split_port(authority: str, default: int) -> tuple[str, int]:
    if authority.startswith("["):
        inner, bracket, tail = authority.partition("]")
        host, colon, port_text = inner + bracket, tail[:1], tail[1:]
        if tail and colon != ":":
            raise _bad("only a port may follow the brackets of an IPv6 address")
    else:
        host, colon, port_text = authority.partition(":")
    if not colon:
        return host, default
    if not _PORT.fullmatch(port_text) or int(port_text) > 65535:
        raise _bad("the port of the URL must be a decimal number from 1 to 65535")
    return host, int(port_text)


def _canonical_host(text: str) -> tuple[str, Address | None]:
    if text.startswith("["):
        return _bracketed(text)
    name = _to_ascii(text).removesuffix(".")
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise _bad("the host of the URL is no valid name; letters, digits, hyphens and dots only")
    if not _NUMBER.fullmatch(labels[-1]):
        return name, None
    # A last label that is a number makes the resolver read the whole host as an address, in
    # octal, hexadecimal or with parts missing: only the one plain spelling may pass.
    if name != text.removesuffix("."):
        raise _bad("write the IPv4 address as four plain decimal numbers")
    try:
        return name, ipaddress.IPv4Address(name)
    except ValueError:
        raise _bad("write the IPv4 address as four plain decimal numbers") from None


def _bracketed(text: str) -> tuple[str, Address]:
    inner = text[1:-1]
    if not text.endswith("]") or "%" in inner:
        raise _bad("write an IPv6 address in brackets and without a zone")
    try:
        address = ipaddress.IPv6Address(inner)
    except ValueError:
        raise _bad("the brackets of the URL hold no IPv6 address") from None
    return str(address), address


def _to_ascii(text: str) -> str:
    if text.isascii():
        return text.lower()
    try:
        return idna.encode(text, uts46=True, std3_rules=True).decode("ascii")
    except UnicodeError:
        raise _bad("the host of the URL is no valid international domain name") from None


def _encode(target: str) -> str:
    encoded = quote(target, safe=_TARGET_SAFE)
    if len(encoded) > URL_CHARACTERS_MAX:
        raise _bad(f"the URL is longer than {URL_CHARACTERS_MAX} bytes when encoded; shorten it")
    return encoded


def _without_dots(path: str) -> str:
    kept: list[str] = []
    segments = path.split("/")[1:]
    for segment in segments:
        if segment == "..":
            kept[-1:] = []
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in (".", ".."):
        kept.append("")
    return "/" + "/".join(kept)
