"""The IPP client against good, slow, broken and hostile servers, and against ipptool."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from farhand.systems.printing.drivers.ipp_client import (
    Broken,
    Endpoint,
    IppClient,
    IppError,
    Refused,
    Timeouts,
    Unreachable,
    endpoint,
)
from farhand.systems.printing.drivers.ipp_values import (
    Collection,
    Group,
    GroupTag,
    Localized,
    Message,
    Range,
    Resolution,
    Tag,
    attribute,
)
from farhand.systems.printing.drivers.ipp_wire import encode
from tests.peers.printers import find_program, free_port, until
from tests.systems.printing.ipp_server import answering, http, read_request, talking

ASK = Message(
    code=0x000B,
    request_id=5,
    groups=(Group(GroupTag.OPERATION, (attribute("attributes-charset", Tag.CHARSET, "utf-8"),)),),
)
OK = Message(
    code=0,
    request_id=5,
    groups=(Group(GroupTag.OPERATION, (attribute("attributes-charset", Tag.CHARSET, "utf-8"),)),),
)
SHORT = Timeouts(connect_ms=2_000, read_ms=300, stall_ms=500, continue_ms=100)


def client(uri: str, **wanted: int) -> IppClient:
    return IppClient(endpoint(uri), timeouts=SHORT, **wanted)


@pytest.mark.parametrize(
    ("uri", "host", "port", "path", "secure"),
    [
        ("ipp://printer", "printer", 631, "/", False),
        ("ipp://printer:8631/ipp/print", "printer", 8631, "/ipp/print", False),
        ("ipps://[::1]/ipp", "::1", 631, "/ipp", True),
        ("ipp://h/printers/B%C3%BCro", "h", 631, "/printers/B%C3%BCro", False),
        ("ipp://h/printers/Büro 1", "h", 631, "/printers/B%C3%BCro%201", False),
    ],
)
def test_addresses_are_read(uri: str, host: str, port: int, path: str, secure: bool) -> None:
    where = endpoint(uri)
    assert (where.host, where.port, where.path, where.secure) == (host, port, path, secure)


def test_a_socket_address_names_the_queue_on_localhost() -> None:
    assert endpoint("ipp+unix://%2Frun%2Fcups%2Fcups.sock/printers/a") == Endpoint(
        host="localhost",
        port=631,
        path="/printers/a",
        printer_uri="ipp://localhost/printers/a",
        socket="/run/cups/cups.sock",
    )


@pytest.mark.parametrize("uri", ["http://h/", "ipp:///path", "h", "ipp://user:secret@h/", "ipp+unix:///x"])
def test_what_is_no_address_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match="address"):
        endpoint(uri)


async def test_a_document_follows_its_message_with_a_length(tmp_path: Path) -> None:
    path = tmp_path / "document"
    path.write_bytes(bytes(range(256)) * 2_000)
    async with answering(lambda _message, _document: OK) as server:
        assert await client(server.uri).send(ASK, path) == OK
    ((message, document),) = server.asked
    assert message == ASK
    assert document == path.read_bytes()
    assert "Expect: 100-continue" in server.heads[0]
    assert "POST /ipp/print HTTP/1.1" in server.heads[0]


async def test_a_server_that_never_says_continue_gets_the_document_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "document"
    path.write_bytes(b"%PDF")

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(len(encode(ASK)) + 4)
        writer.write(http(encode(OK)))
        await writer.drain()
        await reader.read()

    async with talking(talk) as server:
        assert await client(server.uri).send(ASK, path) == OK


async def test_a_refusal_before_the_document_says_that_nothing_left(tmp_path: Path) -> None:
    path = tmp_path / "document"
    path.write_bytes(b"x" * 1_000_000)
    body: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(http(b"", status="413 Too Large"))
        await writer.drain()
        body.append(await reader.read())

    async with talking(talk) as server:
        with pytest.raises(Refused, match="too large") as caught:
            await client(server.uri).send(ASK, path)
        assert (caught.value.sent, caught.value.status) == (False, 413)
        await until(lambda: bool(body), "the client hangs up")
    assert body == [b""]


async def test_an_early_reply_stops_the_document(tmp_path: Path) -> None:
    path = tmp_path / "document"
    path.write_bytes(b"x" * 50_000_000)
    refusal = Message(code=0x040A, request_id=5, groups=())

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await reader.readexactly(1_000)
        writer.write(http(encode(refusal)))
        await writer.drain()
        while await reader.read(65536):
            pass

    async with talking(talk) as server:
        assert (await client(server.uri).send(ASK, path)).code == 0x040A


async def test_a_connection_cut_in_the_document_may_have_printed(tmp_path: Path) -> None:
    path = tmp_path / "document"
    path.write_bytes(b"x" * 5_000_000)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await reader.readexactly(1_000)
        writer.transport.abort()

    async with talking(talk) as server:
        with pytest.raises(Broken) as caught:
            await client(server.uri).send(ASK, path)
    assert caught.value.sent


async def test_a_server_that_stops_reading_meets_the_write_limit(tmp_path: Path) -> None:
    path = tmp_path / "document"
    path.write_bytes(b"x" * 50_000_000)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await asyncio.Event().wait()

    async with talking(talk) as server:
        with pytest.raises(Broken, match="stopped taking data") as caught:
            await client(server.uri).send(ASK, path)
    assert caught.value.sent


async def test_silence_meets_the_read_limit() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with talking(talk) as server:
        with pytest.raises(Broken, match="no reply in time"):
            await client(server.uri).send(ASK)


async def test_a_refused_connection_and_a_missing_document_are_told_apart(tmp_path: Path) -> None:
    nobody = client(f"ipp://127.0.0.1:{free_port()}/")
    with pytest.raises(Unreachable, match="cannot be reached"):
        await nobody.send(ASK)
    with pytest.raises(IppError, match="document cannot be read"):
        await nobody.send(ASK, tmp_path / "missing")


@pytest.mark.parametrize(
    "reply",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        http(b"<html>Sign in</html>"),
        http(encode(OK)[:-1]),
        http(encode(OK)[:12]),
        http(b""),
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 200_000,
    ],
)
async def test_what_is_no_ipp_reply_is_a_clear_error(reply: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader, writer)
        writer.write(reply)
        await writer.drain()

    async with talking(talk) as server:
        with pytest.raises(Refused, match="no IPP printer's reply"):
            await client(server.uri, reply_max=100_000).send(ASK)


@pytest.mark.parametrize(
    "reply",
    [b"", b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort", b"H" * 100_000],
)
async def test_a_reply_that_breaks_off_is_broken(reply: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader, writer)
        writer.write(reply)
        await writer.drain()

    async with talking(talk) as server:
        with pytest.raises(Broken):
            await client(server.uri).send(ASK)


@pytest.mark.parametrize("code", [401, 403, 404, 426, 500])
async def test_http_refusals_say_what_to_do(code: int) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader, writer)
        writer.write(http(b"no", status=f"{code} No"))
        await writer.drain()

    async with talking(talk) as server:
        with pytest.raises(Refused, match=f"HTTP {code}") as caught:
            await client(server.uri).send(ASK)
    assert caught.value.status == code


async def test_replies_in_chunks_and_without_length_are_read() -> None:
    raw = encode(OK)
    chunks = b"".join(b"%x;note\r\n%s\r\n" % (1, raw[i : i + 1]) for i in range(len(raw))) + b"0\r\n\r\n"
    replies = [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks,
        b"HTTP/1.0 200 OK\r\n\r\n" + raw,
        b"HTTP/1.1 102 Processing\r\n\r\n" + http(raw),
    ]

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader, writer)
        writer.write(replies.pop())
        await writer.drain()

    async with talking(talk) as server:
        for _ in range(len(replies)):
            assert await client(server.uri).send(ASK) == OK


IPPTOOL = """{
    NAME "Print with every kind of value"
    OPERATION Print-Job
    GROUP operation-attributes-tag
    ATTR charset attributes-charset utf-8
    ATTR naturalLanguage attributes-natural-language en
    ATTR uri printer-uri $uri
    ATTR name requesting-user-name "Jürgen"
    ATTR name job-name "Ünïcødé 日本"
    ATTR mimeMediaType document-format application/pdf
    GROUP job-attributes-tag
    ATTR integer copies 3
    ATTR rangeOfInteger page-ranges 1-3,7-9
    ATTR resolution printer-resolution 600x300dpi
    ATTR boolean test-flag true
    ATTR enum orientation-requested 4
    ATTR no-value test-nothing
    ATTR collection media-col {
        MEMBER collection media-size {
            MEMBER integer x-dimension 21000
            MEMBER integer y-dimension 29700
        }
        MEMBER keyword media-type stationery
    }
    FILE $filename
    STATUS successful-ok
    EXPECT job-id OF-TYPE integer COUNT 1 WITH-VALUE 42
    EXPECT job-uri OF-TYPE uri
    EXPECT job-state OF-TYPE enum WITH-VALUE 9
    EXPECT job-state-reasons OF-TYPE keyword COUNT 2
    EXPECT job-name OF-TYPE nameWithLanguage WITH-VALUE "Büro"
    EXPECT media-col OF-TYPE collection
    EXPECT copies-supported OF-TYPE rangeOfInteger WITH-VALUE 1,99
    EXPECT printer-resolution OF-TYPE resolution WITH-VALUE 600x300dpi
    EXPECT test-flag OF-TYPE boolean WITH-VALUE true
    EXPECT date-time-at-creation OF-TYPE dateTime
    EXPECT test-nothing OF-TYPE no-value
}
"""


def everything() -> Message:
    size = Collection(
        (attribute("x-dimension", Tag.INTEGER, 21000), attribute("y-dimension", Tag.INTEGER, 29700))
    )
    media = Collection(
        (attribute("media-size", Tag.COLLECTION, size), attribute("media-type", Tag.KEYWORD, "stationery"))
    )
    job = (
        attribute("job-id", Tag.INTEGER, 42),
        attribute("job-uri", Tag.URI, "ipp://localhost/ipp/print/42"),
        attribute("job-state", Tag.ENUM, 9),
        attribute("job-state-reasons", Tag.KEYWORD, "job-completed-successfully", "none"),
        attribute("job-name", Tag.NAME_LANG, Localized("de", "Büro")),
        attribute("media-col", Tag.COLLECTION, media),
        attribute("copies-supported", Tag.RANGE, Range(1, 99)),
        attribute("printer-resolution", Tag.RESOLUTION, Resolution(600, 300, 3)),
        attribute("test-flag", Tag.BOOLEAN, True),
        attribute("date-time-at-creation", Tag.DATE_TIME, b"\x07\xea\x08\x01\x0c\x00\x00\x00+\x00\x00"),
        attribute("test-nothing", Tag.NO_VALUE, None),
    )
    head = (
        attribute("attributes-charset", Tag.CHARSET, "utf-8"),
        attribute("attributes-natural-language", Tag.LANGUAGE, "en"),
    )
    return Message(code=0, request_id=1, groups=(Group(GroupTag.OPERATION, head), Group(GroupTag.JOB, job)))


@pytest.mark.parametrize("transfer", ["-L", "-c"])
async def test_ipptool_and_our_codec_understand_each_other(tmp_path: Path, transfer: str) -> None:
    (tmp_path / "print.test").write_text(IPPTOOL)
    (tmp_path / "doc.pdf").write_bytes(b"%PDF-1.4 hello")

    def answer(message: Message, _document: bytes) -> Message:
        return replace(everything(), request_id=message.request_id, version=message.version)

    async with answering(answer) as server:
        process = await asyncio.create_subprocess_exec(
            find_program("ipptool"), "-tI", transfer, "-T", "10", "-f", str(tmp_path / "doc.pdf"),
            server.uri, str(tmp_path / "print.test"),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output, _ = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0, output.decode()
    ((message, document),) = server.asked
    assert document == b"%PDF-1.4 hello"
    operation, job = message.group(GroupTag.OPERATION), message.group(GroupTag.JOB)
    assert message.code == 0x0002
    assert operation.first("requesting-user-name") == "Jürgen"
    assert operation.first("job-name") == "Ünïcødé 日本"
    assert job.number("copies") == 3
    assert job.all("page-ranges") == [Range(1, 3), Range(7, 9)]
    assert job.first("printer-resolution") == Resolution(600, 300, 3)
    assert job.first("test-flag") is True
    assert job.number("orientation-requested") == 4
    assert job.all("test-nothing") == []
    assert job.first("media-col") == everything().group(GroupTag.JOB).first("media-col")
