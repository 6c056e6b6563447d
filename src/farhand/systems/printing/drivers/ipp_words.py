"""IPP's codes and keywords in words.

Statuses of RFC 8011 section 4.1.6 and appendix B; printer-state-reasons of RFC 8011 section
5.4.12 and PWG 5100.9; job-state-reasons of section 5.3.8; CUPS's own where named.
"""

from collections.abc import Iterable

# Reasons that stop the paper until a person comes.
_BLOCKING = {
    "alert-removal-of-binary-change-entry": "a person is needed at the printer",
    "connecting-to-device": "the queue does not reach its device",
    "cover-open": "a cover is open",
    "cups-missing-filter": "the queue misses a filter; install its driver",
    "cups-insecure-filter": "the queue's filter has unsafe permissions",
    "deactivated": "the printer is switched off for jobs",
    "developer-empty": "the developer is used up",
    "door-open": "a door is open",
    "fuser-over-temp": "the fuser is too hot",
    "fuser-under-temp": "the fuser is too cold",
    "input-tray-missing": "an input tray is missing",
    "input-cannot-feed-size-selected": "no tray feeds the paper of this job",
    "interlock-open": "an interlock is open",
    "interpreter-memory-exhausted": "the printer's memory is full",
    "marker-supply-empty": "ink or toner is used up",
    "marker-supply-missing": "ink or toner is missing",
    "marker-waste-full": "the waste container is full",
    "media-empty": "the printer is out of paper",
    "media-jam": "paper is jammed",
    "media-needed": "the printer asks for other paper",
    "moving-to-paused": "the printer is about to pause",
    "offline": "the printer is offline",
    "opc-life-over": "the drum is used up",
    "other": "the printer has a problem it does not name",
    "output-area-full": "the output tray is full",
    "output-tray-missing": "an output tray is missing",
    "paused": "the printer is paused",
    "shutdown": "the printer is switched off or starting",
    "spool-area-full": "the printer's storage is full",
    "stopped-partly": "part of the printer is stopped",
    "timed-out": "the printer's device does not answer",
    "toner-empty": "the toner is used up",
    "wax-empty": "the wax is used up",
}
_HARMLESS = {
    "developer-low": "the developer is low",
    "marker-supply-low": "ink or toner is low",
    "marker-waste-almost-full": "the waste container is almost full",
    "media-low": "paper is low",
    "opc-near-eol": "the drum is nearly used up",
    "output-area-almost-full": "the output tray is almost full",
    "toner-low": "the toner is low",
}
_JOB = {
    "account-authorization-failed": "the printer's accounting refused the job",
    "account-closed": "the account at the printer is closed",
    "account-info-needed": "the printer wants to know the account",
    "account-limit-reached": "the account at the printer is used up",
    "cups-held-for-authentication": "the queue wants a user name and password for its device",
    "job-held-for-authorization": "the printer waits for someone to release the job",
    "job-held-for-button-press": "the printer waits for a button press",
    "job-hold-until-specified": "the job is held at the printer",
    "job-password-wait": "the printer waits for the job's password",
    "printer-stopped": "the printer is stopped",
    "printer-stopped-partly": "part of the printer is stopped",
    "resources-are-not-ready": "the printer misses paper or another resource the job asks for",
}
_ENDINGS = {
    "aborted-by-system": "the printer gave up",
    "canceled-at-device": "cancelled at the printer",
    "canceled-by-operator": "cancelled by the printer's operator",
    "canceled-by-user": "cancelled by a user",
    "compression-error": "the printer could not unpack the document",
    "document-access-error": "the printer could not read the document",
    "document-format-error": "the document is damaged or of another format",
    "document-password-error": "the document is locked by a password",
    "document-permission-error": "the document forbids printing",
    "document-security-error": "the printer refuses the document for its security",
    "document-unprintable-error": "the printer could not render the document",
    "errors-detected": "the printer found errors",
    "job-canceled-after-timeout": "it waited too long at the printer",
    "job-completed-with-errors": "it ended with errors",
    "job-hold-until-timeout": "it was held too long",
    "unsupported-attributes-or-values": "the printer does not know a setting of the job",
    "unsupported-compression": "the printer does not know the compression",
    "unsupported-document-format": "the printer does not know the document's format",
}
_STATUS = {
    0x0400: "the printer calls the request malformed",
    0x0401: "the printer does not let this user print",
    0x0402: "the printer wants a user name and password, which no driver here sends",
    0x0403: "the printer does not let this user print",
    0x0404: "the printer cannot do this now",
    0x0405: "the printer waited too long",
    0x0406: "the printer does not know this job or queue",
    0x0407: "the job or queue is gone",
    0x0408: "the document is too large for the printer",
    0x040A: "the printer does not take this document format",
    0x040B: "the printer does not take a setting of the job",
    0x040E: "settings of the job contradict each other at this printer",
    0x0411: "the document is damaged or of another format",
    0x0500: "the printer has an internal error",
    0x0501: "the printer does not know this operation",
    0x0502: "the printer's service is not available",
    0x0504: "the printer's device has an error",
    0x0505: "the printer has a passing error",
    0x0506: "the printer accepts no jobs",
    0x0507: "the printer is busy",
    0x0508: "the job was cancelled at the printer",
    0x050A: "the printer is switched off for jobs",
}
_PASSING = frozenset({0x0405, 0x0500, 0x0502, 0x0504, 0x0505, 0x0506, 0x0507, 0x050A})

NOT_POSSIBLE, NOT_FOUND, GONE = 0x0404, 0x0406, 0x0407
BUSY, VERSION_NOT_SUPPORTED, OPERATION_NOT_SUPPORTED = 0x0507, 0x0503, 0x0501


def is_ok(status: int) -> bool:
    """Whether a status reports success, also with ignored or substituted attributes."""
    return status < 0x0100


def is_passing(status: int) -> bool:
    """Whether the same request could succeed later."""
    return status in _PASSING


def status_words(status: int, message: str = "", unsupported: Iterable[str] = ()) -> str:
    """A status as a sentence, with the printer's message and the attributes it did not take."""
    text = _STATUS.get(status, "the printer refused the request")
    names = ", ".join(unsupported)
    if names:
        text += f" ({names})"
    return f"{text} [{status:#06x}{': ' + message.strip() if message.strip() else ''}]"


def base_reason(keyword: str) -> str:
    """A printer-state-reason without its severity; empty for none and for mere reports."""
    if keyword == "none" or keyword.endswith("-report"):
        return ""
    return keyword.removesuffix("-warning").removesuffix("-error")


def printer_words(keywords: Iterable[str]) -> list[str]:
    """Every printer-state-reason as `keyword: words`; what has no words stays a keyword."""
    bases = [base for keyword in keywords if (base := base_reason(keyword))]
    words = _BLOCKING | _HARMLESS
    return [f"{base}: {words[base]}" if base in words else base for base in dict.fromkeys(bases)]


def blocking_words(keywords: Iterable[str]) -> list[str]:
    """The printer-state-reasons that keep a job waiting, as `keyword: words`."""
    bases = [base for keyword in keywords if (base := base_reason(keyword))]
    return [f"{base}: {_BLOCKING[base]}" for base in dict.fromkeys(bases) if base in _BLOCKING]


def waiting_words(keywords: Iterable[str]) -> list[str]:
    """The job-state-reasons that keep a job waiting, as `keyword: words`."""
    return [f"{keyword}: {_JOB[keyword]}" for keyword in keywords if keyword in _JOB]


def ending_words(keywords: Iterable[str], *messages: str) -> str:
    """Why a job ended badly: the printer's own message first, then its reasons."""
    parts = [message.strip() for message in messages if message.strip()]
    for keyword in keywords:
        if keyword in _ENDINGS:
            parts.append(f"{keyword}: {_ENDINGS[keyword]}")
        elif keyword in _BLOCKING or keyword in _JOB:
            parts.append(keyword)
    return "; ".join(dict.fromkeys(parts)) or "the printer gives no reason"
