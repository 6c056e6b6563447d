"""The Windows print spooler through winspool.drv.

Structures and constants of winspool.h (JOB_INFO_1W, PRINTER_INFO_2W, DOC_INFO_1W), written with
types of fixed width, so that the module also loads, and is tested, elsewhere.
"""

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

_DWORD, _WORD, _TEXT = ctypes.c_uint32, ctypes.c_uint16, ctypes.c_wchar_p
_ENUM_LOCAL, _ENUM_CONNECTIONS = 0x2, 0x4
_JOB_CONTROL_DELETE = 5
_INSUFFICIENT_BUFFER, _INVALID_PARAMETER = 122, 87
_JOBS_MAX = 1000

JOB_PAUSED, JOB_ERROR, JOB_DELETING, JOB_SPOOLING = 0x1, 0x2, 0x4, 0x8
JOB_PRINTING, JOB_OFFLINE, JOB_PAPEROUT, JOB_PRINTED = 0x10, 0x20, 0x40, 0x80
JOB_DELETED, JOB_BLOCKED, JOB_INTERVENTION, JOB_COMPLETE = 0x100, 0x200, 0x400, 0x1000

JOB_WORDS = {
    JOB_PAUSED: "the job is paused in the Windows queue",
    JOB_ERROR: "the job has an error in the Windows queue",
    JOB_OFFLINE: "the printer is offline",
    JOB_PAPEROUT: "the printer is out of paper",
    JOB_BLOCKED: "the driver cannot print the job",
    JOB_INTERVENTION: "a person is needed at the printer",
}
PRINTER_PAUSED, PRINTER_ERROR, PRINTER_OFFLINE, PRINTER_PRINTING = 0x1, 0x2, 0x80, 0x400
ATTRIBUTE_WORK_OFFLINE = 0x400
PRINTER_WORDS = {
    PRINTER_PAUSED: "the printer is paused",
    PRINTER_ERROR: "the printer has an error",
    0x8: "paper is jammed",
    0x10: "the printer is out of paper",
    0x40: "the printer has a problem with its paper",
    PRINTER_OFFLINE: "the printer is offline",
    0x800: "the output tray is full",
    0x1000: "the printer is not available",
    0x20000: "the toner is low",
    0x40000: "the toner is used up",
    0x100000: "a person is needed at the printer",
    0x400000: "a door is open",
}


class _SystemTime(ctypes.Structure):
    _fields_ = [(f"field{number}", _WORD) for number in range(8)]


class JobInfo1(ctypes.Structure):
    """JOB_INFO_1W."""

    _fields_ = [
        ("job_id", _DWORD),
        ("printer", _TEXT),
        ("machine", _TEXT),
        ("user", _TEXT),
        ("document", _TEXT),
        ("datatype", _TEXT),
        ("status_text", _TEXT),
        ("status", _DWORD),
        ("priority", _DWORD),
        ("position", _DWORD),
        ("total_pages", _DWORD),
        ("pages_printed", _DWORD),
        ("submitted", _SystemTime),
    ]


class PrinterInfo2(ctypes.Structure):
    """PRINTER_INFO_2W."""

    _fields_ = [
        ("server", _TEXT),
        ("name", _TEXT),
        ("share", _TEXT),
        ("port", _TEXT),
        ("driver", _TEXT),
        ("comment", _TEXT),
        ("location", _TEXT),
        ("dev_mode", ctypes.c_void_p),
        ("separator", _TEXT),
        ("processor", _TEXT),
        ("datatype", _TEXT),
        ("parameters", _TEXT),
        ("security", ctypes.c_void_p),
        ("attributes", _DWORD),
        ("priority", _DWORD),
        ("default_priority", _DWORD),
        ("start_time", _DWORD),
        ("until_time", _DWORD),
        ("status", _DWORD),
        ("jobs", _DWORD),
        ("average_ppm", _DWORD),
    ]


class DocInfo1(ctypes.Structure):
    """DOC_INFO_1W."""

    _fields_ = [("name", _TEXT), ("output", _TEXT), ("datatype", _TEXT)]


class SpoolError(OSError):
    """A spooler call failed; `errno` is the Windows error code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolJob:
    """A job in a Windows queue; `status` is JOB_STATUS_* bits."""

    id: int
    document: str
    status: int
    status_text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolPrinter:
    """A Windows printer; `status` is PRINTER_STATUS_* bits."""

    name: str
    status: int
    attributes: int


class Library(Protocol):
    """winspool.drv, or what stands in for it: its functions, and the last error code."""

    def call(self, function: str, *arguments: Any) -> int:
        """Calls a function; 0 or False means failure."""
        ...

    def last_error(self) -> int:
        """GetLastError after a failed call."""
        ...


class _Winspool:
    def __init__(self, library: Any, last_error: Callable[[], int]):
        self._library, self._last_error = library, last_error

    def call(self, function: str, *arguments: Any) -> int:
        return int(getattr(self._library, function)(*arguments))

    def last_error(self) -> int:
        return self._last_error()


def load() -> Library:
    """The system's own winspool.drv; RuntimeError anywhere but on Windows."""
    if sys.platform == "win32":
        return _Winspool(ctypes.WinDLL("winspool.drv", use_last_error=True), ctypes.get_last_error)
    raise RuntimeError("Windows printers exist on Windows only")


class Spooler:
    """The calls a print needs. All block, and raise SpoolError."""

    def __init__(self, library: Library):
        self._library = library

    def printers(self) -> list[SpoolPrinter]:
        """Local printers and connections of the account the agent runs under."""
        needed, count = _DWORD(), _DWORD()
        size = 0
        while True:
            buffer = ctypes.create_string_buffer(max(size, 1))
            done = self._library.call(
                "EnumPrintersW",
                _DWORD(_ENUM_LOCAL | _ENUM_CONNECTIONS), None, _DWORD(2), buffer, _DWORD(size),
                ctypes.byref(needed), ctypes.byref(count),
            )  # fmt: skip
            if done:
                break
            size = self._grown("EnumPrintersW", size, needed)
        found = (PrinterInfo2 * count.value).from_buffer(buffer) if count.value else ()
        return [
            SpoolPrinter(name=item.name or "", status=item.status, attributes=item.attributes)
            for item in found
        ]

    def open(self, printer: str) -> ctypes.c_void_p:
        """A handle, to be closed."""
        handle = ctypes.c_void_p()
        self._check("OpenPrinterW", _TEXT(printer), ctypes.byref(handle), None)
        return handle

    def close(self, handle: ctypes.c_void_p) -> None:
        """Gives a handle back."""
        self._library.call("ClosePrinter", handle)

    def start(self, handle: ctypes.c_void_p, document: str) -> int:
        """Begins a raw document; its job id."""
        info = DocInfo1(document, None, "RAW")
        return self._check("StartDocPrinterW", handle, _DWORD(1), ctypes.byref(info))

    def write(self, handle: ctypes.c_void_p, data: bytes) -> None:
        """Hands bytes to the spooler, all of them."""
        written = _DWORD()
        self._check("WritePrinter", handle, data, _DWORD(len(data)), ctypes.byref(written))
        if written.value != len(data):
            raise SpoolError(0, f"the spooler took {written.value} of {len(data)} bytes")

    def end(self, handle: ctypes.c_void_p) -> None:
        """Ends the document, which sets the spooler to work."""
        self._check("EndDocPrinter", handle)

    def job(self, handle: ctypes.c_void_p, job_id: int) -> SpoolJob | None:
        """A job, None when it has left the queue."""
        needed = _DWORD()
        size = 0
        while True:
            buffer = ctypes.create_string_buffer(max(size, ctypes.sizeof(JobInfo1)))
            done = self._library.call(
                "GetJobW", handle, _DWORD(job_id), _DWORD(1), buffer, _DWORD(size), ctypes.byref(needed)
            )
            if done:
                return _job(JobInfo1.from_buffer(buffer))
            if self._library.last_error() == _INVALID_PARAMETER:
                return None
            size = self._grown("GetJobW", size, needed)

    def jobs(self, handle: ctypes.c_void_p) -> list[SpoolJob]:
        """What is in the queue."""
        needed, count = _DWORD(), _DWORD()
        size = 0
        while True:
            buffer = ctypes.create_string_buffer(max(size, 1))
            done = self._library.call(
                "EnumJobsW",
                handle, _DWORD(0), _DWORD(_JOBS_MAX), _DWORD(1), buffer, _DWORD(size),
                ctypes.byref(needed), ctypes.byref(count),
            )  # fmt: skip
            if done:
                break
            size = self._grown("EnumJobsW", size, needed)
        found = (JobInfo1 * count.value).from_buffer(buffer) if count.value else ()
        return [_job(item) for item in found]

    def delete(self, handle: ctypes.c_void_p, job_id: int) -> None:
        """Asks the spooler to drop a job."""
        self._check("SetJobW", handle, _DWORD(job_id), _DWORD(0), None, _DWORD(_JOB_CONTROL_DELETE))

    def _check(self, function: str, *arguments: Any) -> int:
        result = self._library.call(function, *arguments)
        if not result:
            raise self._error(function)
        return result

    def _grown(self, function: str, size: int, needed: ctypes.c_uint32) -> int:
        # The queue may grow between two calls, so that the needed size is asked for again.
        if self._library.last_error() != _INSUFFICIENT_BUFFER or needed.value <= size:
            raise self._error(function)
        return needed.value

    def _error(self, function: str) -> SpoolError:
        code = self._library.last_error()
        return SpoolError(code, f"{function} failed with Windows error {code}")


def _job(info: JobInfo1) -> SpoolJob:
    return SpoolJob(
        id=info.job_id,
        document=info.document or "",
        status=info.status,
        status_text=info.status_text or "",
    )
