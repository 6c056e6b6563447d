"""One parser, and nothing that two parsers could read differently."""

import ipaddress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farhand.egress import EgressError, parse_url
from farhand.egress.url import join_url

REFUSED = [
    "",
    "example.com/x",
    "//example.com/",
    "/x",
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://example.com/",
    "javascript:alert(1)",
    "http:example.com",
    "http:/example.com",
    "http://",
    "http:///path",
    "http://?q",
    "http://#f",
    "http://user@example.com/",
    "http://user:secret@example.com/",
    "http://@example.com/",
    "http://a@b@example.com/",
    "http://example.com:80@evil.example/",
    "http://example.com:0/",
    "http://example.com:/",
    "http://example.com:65536/",
    "http://example.com:080/",
    "http://example.com:+80/",
    "http://example.com:8_0/",
    "http://example.com:٨٠/",
    "http://example.com:80:80/",
    "http://exa mple.com/",
    " http://example.com/",
    "http://example.com/a b",
    "http://example.com/\t",
    "http://example.com/\r\nX: y",
    "http://example.com/\x00",
    "http://example.com/\x7f",
    "http://example.com/\x85",
    "http://example.com/\ud800",
    "http://example.com\\@evil.example/",
    "http:\\\\example.com/",
    "http://127%2e0%2e0%2e1/",
    "http://exam%70le.com/",
    "http://2130706433/",
    "http://0177.0.0.1/",
    "http://0x7f.1/",
    "http://0x7f000001/",
    "http://127.1/",
    "http://127.0.1/",
    "http://0/",
    "http://0x/",
    "http://017700000001/",
    "http://127.0.0.01/",
    "http://127.0.0.1.1/",
    "http://256.1.1.1/",
    "http://1.2.3.4.5/",
    "http://example.1/",
    "http://example.0x7f/",
    "http://①②⑦.⓪.⓪.①/",
    "http://⑧.⑧.⑧.⑧/",
    "http://127。0。0。1/",
    "http://١٢٧.0.0.1/",
    "http://[::1/",
    "http://::1/",
    "http://[::1]x/",
    "http://[fe80::1%25eth0]/",
    "http://[fe80::1%eth0]/",
    "http://[v1.fe80]/",
    "http://[1.2.3.4]/",
    "http://[]/",
    "http://a[::1]/",
    "http://.example.com/",
    "http://example..com/",
    "http://example.com../",
    "http://-example.com/",
    "http://example-.com/",
    "http://exa_mple.com/",
    "http://exa*mple.com/",
    "http://℀.com/",
    "http://％31.com/",
    "http://" + "a" * 64 + ".com/",
    "http://" + "a." * 127 + "com/",
    "http://example.com/" + "a" * 8192,
    "http://example.com/" + "ä" * 4000,
]

ACCEPTED = [
    ("http://example.com", "http://example.com/"),
    ("HTTP://EXAMPLE.com/A", "http://example.com/A"),
    ("https://example.com:443/x", "https://example.com/x"),
    ("http://example.com:80/", "http://example.com/"),
    ("https://example.com:8443/x?y=1#frag", "https://example.com:8443/x?y=1"),
    ("http://example.com?q=1", "http://example.com/?q=1"),
    ("http://example.com./", "http://example.com/"),
    ("http://example.com/@user:x", "http://example.com/@user:x"),
    ("http://8.8.8.8/", "http://8.8.8.8/"),
    ("http://8.8.8.8./", "http://8.8.8.8/"),
    ("http://[2606:4700:0:0:0:0:0:1111]:8080/", "http://[2606:4700::1111]:8080/"),
    ("http://[::FFFF:1.2.3.4]/", "http://[::ffff:102:304]/"),
    ("http://bücher.example/", "http://xn--bcher-kva.example/"),
    ("http://BÜCHER。example/", "http://xn--bcher-kva.example/"),
    ("http://r3---sn-4g5e6n.example/", "http://r3---sn-4g5e6n.example/"),
    ("http://1.example/", "http://1.example/"),
    ("http://0x7f.example/", "http://0x7f.example/"),
    ("http://example.com/ü/%zz?ü='", "http://example.com/%C3%BC/%zz?%C3%BC='"),
    ('http://example.com/<"{`', "http://example.com/%3C%22%7B%60"),
]


@pytest.mark.parametrize("text", REFUSED)
def test_a_url_with_two_readings_is_refused(text: str) -> None:
    with pytest.raises(EgressError) as refusal:
        parse_url(text)
    assert refusal.value.code == "bad-url"


def test_credentials_in_a_url_are_refused_with_the_way_out() -> None:
    with pytest.raises(EgressError, match="Authorization header"):
        parse_url("http://user:secret@example.com/")


@pytest.mark.parametrize(("text", "canonical"), ACCEPTED)
def test_a_plain_url_gets_its_canonical_form(text: str, canonical: str) -> None:
    assert str(parse_url(text)) == canonical


def test_a_literal_host_is_known_as_an_address() -> None:
    assert parse_url("http://8.8.8.8/").address == ipaddress.ip_address("8.8.8.8")
    assert parse_url("http://[2606:4700::1]/").address == ipaddress.ip_address("2606:4700::1")
    assert parse_url("http://example.com/").address is None


@settings(deadline=None)
@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for prefix in ("", "http://", "https://a/", "http://["):
        try:
            url = parse_url(prefix + text)
        except EgressError:
            continue
        assert url.target.isascii()
        assert url.host.isascii()


_HOSTISH = st.text(alphabet="0123456789abcdefx.:[]%-@/?#\\_ü。①٣℀xn", max_size=24)


@settings(deadline=None)
@given(_HOSTISH)
def test_what_is_accepted_is_a_fixed_point_of_the_parser(host: str) -> None:
    try:
        url = parse_url(f"http://{host}/")
    except EgressError:
        return
    assert parse_url(str(url)) == url


@settings(deadline=None)
@given(st.text(max_size=30), st.text(alphabet="./?#:a%", max_size=20))
def test_any_location_is_resolved_or_refused(wild: str, tame: str) -> None:
    base = parse_url("https://example.com/a/b?c")
    for reference in (wild, tame):
        try:
            url = join_url(base, reference)
        except EgressError:
            continue
        assert parse_url(str(url)) == url


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        # RFC 3986 section 5.4, as far as http goes.
        ("g", "http://a.example/b/c/g"),
        ("./g", "http://a.example/b/c/g"),
        ("g/", "http://a.example/b/c/g/"),
        ("/g", "http://a.example/g"),
        ("//g.example", "http://g.example/"),
        ("?y", "http://a.example/b/c/d;p?y"),
        ("g?y", "http://a.example/b/c/g?y"),
        ("g#s", "http://a.example/b/c/g"),
        ("", "http://a.example/b/c/d;p?q"),
        (".", "http://a.example/b/c/"),
        ("..", "http://a.example/b/"),
        ("../g", "http://a.example/b/g"),
        ("../../../g", "http://a.example/g"),
        ("/./g/../h", "http://a.example/h"),
        ("g;x=1/../y", "http://a.example/b/c/y"),
        ("/..//evil.example", "http://a.example//evil.example"),
        ("https://b.example/z", "https://b.example/z"),
    ],
)
def test_a_location_is_resolved_against_the_url_that_was_asked(reference: str, expected: str) -> None:
    assert str(join_url(parse_url("http://a.example/b/c/d;p?q"), reference)) == expected
