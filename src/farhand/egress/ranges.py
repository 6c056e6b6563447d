"""One byte range: asked for, verified when honoured, cut out here when not (RFC 9110 section 14)."""

import re
from dataclasses import dataclass

from farhand.egress.errors import EgressError
from farhand.egress.headers import Head

_REQUESTED = re.compile(r"bytes=(?:([0-9]{1,15})-([0-9]{1,15})?|-([0-9]{1,15}))")
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")
_UNSATISFIED = re.compile(r"bytes \*/([0-9]{1,18})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteRange:
    """What was asked for: `first` to `last` (None: to the end), or the last `suffix` bytes."""

    first: int = 0
    last: int | None = None
    suffix: int | None = None

    def __str__(self) -> str:
        if self.suffix is not None:
            return f"bytes=-{self.suffix}"
        return f"bytes={self.first}-{'' if self.last is None else self.last}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeResult:
    """What became of a range.

    `honoured` says whether the target cut it out (206); otherwise it was cut out here, or does
    not exist (`first` is None). `total` is the size of the whole, where it is known.
    """

    honoured: bool
    first: int | None
    last: int | None
    total: int | None


def parse_range(text: str, *, bytes_max: int) -> ByteRange:
    """Parse `bytes=a-b`, `bytes=a-` or `bytes=-n`.

    Raises EgressError `bad-range` for several ranges, and for a suffix beyond `bytes_max`,
    which could not be cut out here within the limit.
    """
    match = _REQUESTED.fullmatch(text)
    if match is None:
        raise _bad("ask for one range, like bytes=0-1023, bytes=500- or bytes=-100")
    if match[3] is not None:
        suffix = int(match[3])
        if not 1 <= suffix <= bytes_max:
            raise _bad(f"ask for the last 1 to {bytes_max} bytes")
        return ByteRange(suffix=suffix)
    wanted = ByteRange(first=int(match[1]), last=int(match[2]) if match[2] else None)
    if wanted.last is not None and wanted.last < wanted.first:
        raise _bad("the range ends before it begins")
    return wanted


def check_partial(head: Head, wanted: ByteRange | None) -> RangeResult | None:
    """Hold a 206 or 416 against what was asked for; None for other answers.

    Raises EgressError `protocol` when the part is not the one that was asked for, is coded, or
    comes as multipart/byteranges.
    """
    if head.status == 416 and wanted is not None:
        match = _UNSATISFIED.fullmatch(head.first("content-range") or "")
        total = int(match[1]) if match else None
        return RangeResult(honoured=True, first=None, last=None, total=total)
    if head.status != 206:
        return None
    if wanted is None:
        raise _protocol("the target sends a part although the whole was asked for")
    if (head.first("content-type") or "").lower().startswith("multipart/"):
        raise _protocol("the target sends several parts although one was asked for")
    match = _CONTENT_RANGE.fullmatch(head.first("content-range") or "")
    if match is None or len(head.all("content-range")) > 1:
        raise _protocol("the target sends a part without saying which")
    first, last = int(match[1]), int(match[2])
    total = None if match[3] == "*" else int(match[3])
    if not _matches(wanted, first, last, total):
        raise _protocol("the target sends another part than was asked for")
    if head.content_length is not None and head.content_length != last - first + 1:
        raise _protocol("the target's part is not as long as it says")
    return RangeResult(honoured=True, first=first, last=last, total=total)


def _matches(wanted: ByteRange, first: int, last: int, total: int | None) -> bool:
    if last < first or (total is not None and last >= total):
        return False
    if wanted.suffix is not None:
        if total is None:
            return last - first + 1 <= wanted.suffix
        return first == max(total - wanted.suffix, 0) and last == total - 1
    return first == wanted.first and (wanted.last is None or last <= wanted.last)


class Slice:
    """Cuts a range out of a whole body that passes by."""

    def __init__(self, wanted: ByteRange) -> None:
        self._wanted = wanted
        self._tail = bytearray()
        self._seen = 0
        self.done = False

    def take(self, piece: bytes) -> bytes:
        """The wanted bytes of this piece; those of a suffix come with `finish`."""
        at, self._seen = self._seen, self._seen + len(piece)
        wanted = self._wanted
        if wanted.suffix is not None:
            self._tail += piece
            del self._tail[: -wanted.suffix]
            return b""
        end = None if wanted.last is None else max(wanted.last + 1 - at, 0)
        self.done = wanted.last is not None and self._seen > wanted.last
        return piece[max(wanted.first - at, 0) : end]

    def finish(self) -> bytes:
        """The suffix, when the whole has passed."""
        return bytes(self._tail)

    def result(self, *, size: int, ended: bool) -> RangeResult:
        """What was cut out, `size` bytes of it delivered.

        `ended` says that the whole has passed, so that its size is known.
        """
        wanted = self._wanted
        first = wanted.first if wanted.suffix is None else self._seen - size
        return RangeResult(
            honoured=False,
            first=first if size else None,
            last=first + size - 1 if size else None,
            total=self._seen if ended else None,
        )


def _bad(message: str) -> EgressError:
    return EgressError("bad-range", message, source="policy")


def _protocol(message: str) -> EgressError:
    return EgressError("protocol", message, source="target")
