"""A command in a pseudo-terminal."""

import os
import pty
import re
import select
import signal
import struct
import subprocess
from fcntl import ioctl
from termios import TIOCSWINSZ

from tests.client.server import FARHAND


class Terminal:
    """A command in a pseudo-terminal of 80 by 24."""

    def __init__(self, *arguments: str, env: dict[str, str]) -> None:
        self._master, slave = pty.openpty()
        ioctl(slave, TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self._process = subprocess.Popen(
            [str(FARHAND), *arguments],
            env=env,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self._written = bytearray()

    def read_until(self, text: str | None = None) -> str:
        """All that was written until `text` came, or until the command hung up."""
        while text is None or text.encode() not in self._written:
            ready, _, _ = select.select([self._master], [], [], 30)
            assert ready, f"nothing more came: {bytes(self._written)!r}"
            try:
                chunk = os.read(self._master, 65_536)
            except OSError:
                break
            self._written += chunk
        return self._written.decode()

    def interrupt(self) -> None:
        """What Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)

    def end(self) -> tuple[str, int]:
        """All that was written, and the exit code."""
        written = self.read_until()
        os.close(self._master)
        return written, self._process.wait(20)


def without_styles(text: str) -> str:
    """A text without what moves the cursor or sets colours."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
