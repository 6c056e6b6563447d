"""Who the agent is: its key, and letting the server know it and its devices."""

import logging
import os
import platform
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from farhand import __version__
from farhand.agent.backoff import Backoff
from farhand.agent.config import AgentConfig, ConfigError, read_key
from farhand.agent.errors import NoAnswer, Pending, Refused, ShutOut, Stale
from farhand.agent.handler import Declares, Handler
from farhand.agent.link import Link
from farhand.agent.suspend import Waker
from farhand.protocol.agent import PrinterInfo, RegisterReply, RegisterRequest

KEY_NAME: Final = "agent.key"
PENDING_MS: Final = 5_000
log: Final = logging.getLogger(__name__)


def find_key(config: AgentConfig) -> str:
    """The agent's key: from the settings, else its own, made and kept on the first run.

    Raises ConfigError.
    """
    if config.key is not None:
        return config.key
    if config.key_file is not None:
        return read_key(config.key_file)
    path = config.data / KEY_NAME
    if not path.exists():
        _make_key(path)
    return read_key(path)


def _make_key(path: Path) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        return
    except OSError as error:
        raise ConfigError(f"the agent's key cannot be kept in {path}: {error}; set data") from error


class Registration:
    """What the server knows of us. `ids` maps the devices' ids to their names; `agent_id` is ours."""

    def __init__(
        self,
        link: Link,
        waker: Waker,
        name: str,
        handlers: Sequence[Handler],
        show: Callable[[str], None],
    ) -> None:
        self.ids: Mapping[str, str] = {}
        self.agent_id: str | None = None
        self.wait_ms = 25_000
        self._link = link
        self._waker = waker
        self._name = name
        self._handlers = handlers
        self._show = show
        self._known: list[PrinterInfo] | None = None
        self._code: str | None = None
        self._seen: dict[int, Sequence[PrinterInfo]] = {}

    async def refresh(self) -> bool:
        """Looks at the devices and registers when something is new; whether it was.

        Waits for approval and for an unreachable server. Raises ShutOut.
        """
        devices = await self._describe()
        if devices == self._known:
            return False
        reply = await self._register(devices)
        self._known = devices
        self.agent_id = reply.computer_id
        self.wait_ms = reply.wait_ms
        names = [device.name for device in devices]
        self.ids = dict(zip(reply.printer_ids, names, strict=False))
        log.info("agent_registered", extra={"agent": reply.name, "state": reply.state, "devices": len(names)})
        return True

    async def _describe(self) -> list[PrinterInfo]:
        found: dict[str, PrinterInfo] = {}
        for number, handler in enumerate(self._handlers):
            try:
                self._seen[number] = await handler.describe()
            except Exception:
                log.exception("describe_failed", extra={"kinds": ",".join(handler.kinds)})
            for device in self._seen.get(number, ()):
                found.setdefault(device.name, device)
        return sorted(found.values(), key=lambda device: device.name)

    def _capabilities(self) -> list[str]:
        declaring = [handler for handler in self._handlers if isinstance(handler, Declares)]
        return sorted({name for handler in declaring for name in handler.capabilities})

    async def _register(self, devices: list[PrinterInfo]) -> RegisterReply:
        request = RegisterRequest(
            name=self._name,
            printers=devices,
            version=__version__,
            runtime=f"python {platform.python_version()} {platform.system().lower()}",
            capabilities=self._capabilities(),
        )
        backoff = Backoff()
        while True:
            try:
                reply = await self._link.register(request)
            except Pending as pending:
                self._tell(pending)
                await self._waker.sleep(PENDING_MS)
            except NoAnswer as error:
                wait_ms = backoff.next_ms(error.retry_after_ms)
                log.warning("register_failed", extra={"retry_ms": wait_ms, "error": str(error)})
                await self._waker.sleep(wait_ms)
            except (Refused, Stale) as error:
                raise ShutOut(f"the server does not take this agent: {error.message}") from error
            else:
                if self._code is not None:
                    self._show(f"{self._name} is approved.")
                    self._code = None
                return reply

    def _tell(self, pending: Pending) -> None:
        if pending.user_code == self._code:
            return
        self._code = pending.user_code
        minutes = max(1, pending.expires_in_ms // 60_000)
        self._show(
            f"This agent waits for approval. Whoever runs the server approves {self._name!r} "
            f"with the code {pending.user_code} (valid for {minutes} minutes)."
        )
