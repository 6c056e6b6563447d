"""The IPP encoder and decoder, against themselves, garbage and an independent library."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyipp.enums import IppOperation, IppTag
from pyipp.parser import parse as their_parse
from pyipp.serializer import encode_dict as their_encode

from farhand.systems.printing.drivers.ipp_values import (
    Attribute,
    Collection,
    Content,
    Group,
    GroupTag,
    Localized,
    Message,
    Range,
    Resolution,
    Tag,
    Value,
    WireError,
    attribute,
)
from farhand.systems.printing.drivers.ipp_wire import DEPTH_MAX, decode, decode_prefix, encode

INT = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(max_size=40)
STRING_TAGS = [
    Tag.TEXT, Tag.NAME, Tag.KEYWORD, Tag.URI, Tag.URI_SCHEME, Tag.CHARSET, Tag.LANGUAGE, Tag.MIME,
]  # fmt: skip


def of(tag: int | list[Tag], contents: st.SearchStrategy[Content]) -> st.SearchStrategy[Value]:
    tags = st.sampled_from(tag) if isinstance(tag, list) else st.just(tag)
    return st.builds(Value, tags, contents)


SIMPLE = st.one_of(
    of([Tag.UNSUPPORTED, Tag.DEFAULT, Tag.UNKNOWN, Tag.NO_VALUE, Tag.NOT_SETTABLE, Tag.DELETE], st.none()),
    of([Tag.INTEGER, Tag.ENUM], INT),
    of(Tag.BOOLEAN, st.booleans()),
    of(Tag.OCTETS, st.binary(max_size=40)),
    of(Tag.DATE_TIME, st.binary(min_size=11, max_size=11)),
    of(Tag.RESOLUTION, st.builds(Resolution, INT, INT, st.integers(-128, 127))),
    of(Tag.RANGE, st.builds(Range, INT, INT)),
    of([Tag.TEXT_LANG, Tag.NAME_LANG], st.builds(Localized, TEXT, TEXT)),
    of(STRING_TAGS, TEXT),
    of(0x7F, st.binary(max_size=20)),
)


def attributes(values: st.SearchStrategy[Value]) -> st.SearchStrategy[Attribute]:
    name = st.text(min_size=1, max_size=20)
    return st.builds(Attribute, name, st.lists(values, min_size=1, max_size=4).map(tuple))


VALUES = st.recursive(
    SIMPLE,
    lambda inner: of(
        Tag.COLLECTION, st.builds(Collection, st.lists(attributes(inner), max_size=3).map(tuple))
    ),
    max_leaves=8,
)
GROUPS = st.builds(
    Group,
    st.sampled_from([GroupTag.OPERATION, GroupTag.JOB, GroupTag.PRINTER, GroupTag.UNSUPPORTED, 0x09]),
    st.lists(attributes(VALUES), max_size=5).map(tuple),
)
MESSAGES = st.builds(
    Message,
    code=st.integers(0, 0xFFFF),
    request_id=INT,
    groups=st.lists(GROUPS, max_size=4).map(tuple),
    version=st.tuples(st.integers(1, 9), st.integers(0, 255)),
)


@given(MESSAGES, st.binary(max_size=30))
def test_what_is_encoded_is_decoded_and_the_document_stays_apart(message: Message, document: bytes) -> None:
    raw = encode(message)
    assert decode_prefix(raw + document) == (message, len(raw))


@given(MESSAGES, st.data())
def test_a_message_cut_off_anywhere_is_an_error(message: Message, data: st.DataObject) -> None:
    raw = encode(message)
    with pytest.raises(WireError):
        decode(raw[: data.draw(st.integers(0, len(raw) - 1))])


@given(MESSAGES, st.data())
def test_damage_is_an_error_or_another_message_but_nothing_else(
    message: Message, data: st.DataObject
) -> None:
    raw = bytearray(encode(message))
    for _ in range(3):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with suppress(WireError):
        assert isinstance(decode(bytes(raw)), Message)


@given(st.binary(max_size=200))
def test_any_bytes_are_an_error_or_a_message_but_nothing_else(raw: bytes) -> None:
    with suppress(WireError):
        assert isinstance(decode(raw), Message)


def nested(depth: int) -> Collection:
    inner = Collection(())
    for _ in range(depth - 1):
        inner = Collection((attribute("deeper", Tag.COLLECTION, inner),))
    return inner


def in_message(*items: Attribute) -> Message:
    return Message(code=0, request_id=1, groups=(Group(GroupTag.JOB, items),))


def test_collections_nest_to_a_limit() -> None:
    fits = in_message(attribute("media-col", Tag.COLLECTION, nested(DEPTH_MAX)))
    assert decode(encode(fits)) == fits
    with pytest.raises(WireError, match="deeper"):
        encode(in_message(attribute("media-col", Tag.COLLECTION, nested(DEPTH_MAX + 1))))


def test_a_bomb_of_collections_is_an_error_and_not_a_crash() -> None:
    begin = b"\x34\x00\x01x\x00\x00" + b"\x4a\x00\x00\x00\x01x\x34\x00\x00\x00\x00" * 10_000
    with pytest.raises(WireError, match="deeper"):
        decode(b"\x02\x00\x00\x00\x00\x00\x00\x01\x02" + begin)


@pytest.mark.parametrize(
    ("tag", "content"),
    [
        (Tag.INTEGER, 2**31),
        (Tag.INTEGER, True),
        (Tag.BOOLEAN, 1),
        (Tag.KEYWORD, b"bytes"),
        (Tag.KEYWORD, None),
        (Tag.NO_VALUE, "text"),
        (Tag.DATE_TIME, b"short"),
        (Tag.MEMBER_NAME, "x"),
        (Tag.KEYWORD, "x" * 40_000),
        (Tag.INTEGER, Collection(())),
        (0x05, "x"),
    ],
)
def test_a_value_that_does_not_fit_its_tag_is_refused(tag: int, content: Content) -> None:
    with pytest.raises(WireError):
        encode(in_message(attribute("odd", tag, content)))


def test_values_stay_lists_and_lose_their_language_only_when_asked() -> None:
    group = Group(
        GroupTag.PRINTER,
        (
            attribute("media-supported", Tag.KEYWORD, "iso_a4_210x297mm"),
            Attribute("names", (Value(Tag.NAME_LANG, Localized("de", "Büro")), Value(Tag.NAME, "Office"))),
            attribute("gone", Tag.NO_VALUE, None),
        ),
    )
    assert group.all("media-supported") == ["iso_a4_210x297mm"]
    assert group.words("names") == ["Büro", "Office"]
    assert group.all("gone") == []
    assert group.first("missing") is None


def test_text_in_a_wrong_charset_does_not_hide_the_message() -> None:
    raw = encode(in_message(attribute("job-name", Tag.NAME, "Brief x")))
    found = decode(raw.replace(b"Brief x", b"Brief \xfc")).group(GroupTag.JOB)
    assert found.first("job-name") == "Brief \ufffd"


def test_the_independent_library_reads_our_messages() -> None:
    media = Collection(
        (
            attribute(
                "media-size",
                Tag.COLLECTION,
                Collection(
                    (
                        attribute("x-dimension", Tag.INTEGER, 21000),
                        attribute("y-dimension", Tag.INTEGER, 29700),
                    )
                ),
            ),
            attribute("media-type", Tag.KEYWORD, "stationery"),
        )
    )
    head = Group(GroupTag.OPERATION, (attribute("attributes-charset", Tag.CHARSET, "utf-8"),))
    job_group = in_message(
        attribute("job-id", Tag.INTEGER, 42),
        attribute("job-name", Tag.NAME, "Ünïcødé 日本"),
        attribute("job-state-reasons", Tag.KEYWORD, "job-printing", "none"),
        attribute("media-col", Tag.COLLECTION, media),
        attribute("printer-resolution", Tag.RESOLUTION, Resolution(600, 300, 3)),
        attribute("copies-supported", Tag.RANGE, Range(1, 99)),
        attribute("last-document", Tag.BOOLEAN, True),
    ).groups[0]
    message = Message(code=0, request_id=1, groups=(head, job_group))
    theirs = their_parse(encode(message))
    assert theirs["status-code"] == 0
    (job,) = theirs["jobs"]
    assert (job["job-id"], job["job-name"]) == (42, "Ünïcødé 日本")
    assert job["job-state-reasons"] == ["job-printing", "none"]
    assert job["media-col"]["media-size"] == {"x-dimension": 21000, "y-dimension": 29700}
    assert job["media-col"]["media-type"] == "stationery"
    assert list(job["copies-supported"]) == [1, 99]
    assert list(job["printer-resolution"]) == [600, 300, 3]
    assert job["last-document"] is True


def test_we_read_the_messages_of_the_independent_library() -> None:
    raw = their_encode(
        {
            "version": (2, 0),
            "operation": IppOperation.PRINT_JOB,
            "request-id": 77,
            "operation-attributes-tag": {
                "attributes-charset": "utf-8",
                "attributes-natural-language": "en",
                "printer-uri": "ipp://localhost/ipp/print",
                "requesting-user-name": "Jürgen",
                "job-name": "Ünïcødé 日本",
                "document-format": "application/pdf",
            },
            "job-attributes-tag": {"copies": 3, "sides": "two-sided-long-edge"},
            "data": b"%PDF-1.4 document",
        }
    )
    message, offset = decode_prefix(raw)
    assert (message.code, message.request_id, message.version) == (0x0002, 77, (2, 0))
    operation = message.group(GroupTag.OPERATION)
    assert operation.first("job-name") == "Ünïcødé 日本"
    assert operation.first("requesting-user-name") == "Jürgen"
    assert message.group(GroupTag.JOB).number("copies") == 3
    assert message.group(GroupTag.JOB).words("sides") == ["two-sided-long-edge"]
    assert raw[offset:] == b"%PDF-1.4 document"


def test_our_tags_are_those_of_the_independent_library() -> None:
    theirs = {tag.value for tag in IppTag}
    assert {tag.value for tag in GroupTag} <= theirs
    assert {tag.value for tag in Tag} - theirs == set()
