"""The log of a running server or agent: one event word and its fields a line, on standard error."""

import logging
import sys
from typing import Final

from farhand.model.clock import to_rfc3339

LEVELS: Final = ("debug", "info", "warning", "error")
_OWN: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class Lines(logging.Formatter):
    """`time level event field=value …`; a value with spaces is quoted."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as a line, and a traceback below it where there is one."""
        moment = to_rfc3339(int(record.created * 1000))
        fields = {name: value for name, value in record.__dict__.items() if name not in _OWN}
        said = "".join(f" {name}={_value(value)}" for name, value in fields.items())
        line = f"{moment} {record.levelname.lower()} {record.getMessage()}{said}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def start_log(level: str) -> None:
    """Sends the log to standard error from this level on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # One line per request of the HTTP client says nothing that the agent does not say itself.
    for name in ("httpx2", "httpcore2", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _value(value: object) -> str:
    text = str(value)
    plain = text.isprintable() and " " not in text and '"' not in text and text
    return text if plain else ascii(text) if not text.isprintable() else f'"{text}"'
