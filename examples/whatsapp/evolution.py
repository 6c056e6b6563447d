"""The few calls of an Evolution API (version 2) that linking an account takes.

Its documentation: https://doc.evolution-api.com/v2/api-reference/instance-controller. Every
request carries the header `apikey`.
"""

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx2

from farhand.systems.commands import Secret

TIMEOUT_S = 15


class Unreachable(Exception):
    """The service does not answer, or says that it cannot just now."""


class Refused(Exception):
    """The service understood and will not do it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What `connect` came to: the account is linked, or `picture` is the code to scan.

    `picture` is a `data:` URL of a PNG. Neither: the service has no code yet.
    """

    open: bool
    picture: Secret[str] | None = None


class Evolution:
    """One service and the one instance in it that this installation speaks for."""

    def __init__(self, url: str, key: Secret[str], instance: str) -> None:
        self.instance = instance
        self._http = httpx2.AsyncClient(
            base_url=url, headers={"apikey": key.reveal()}, timeout=TIMEOUT_S, trust_env=False
        )

    async def create(self) -> None:
        """Makes the instance; that it is there already is as good."""
        wanted = {"instanceName": self.instance, "integration": "WHATSAPP-BAILEYS", "qrcode": False}
        # 403 is how a name that is in use is refused.
        await self._ask("POST", "/instance/create", json=wanted, fine=(201, 403))

    async def connect(self) -> Link:
        """Starts to link, or goes on with it: while it waits for a phone, the code stays valid."""
        said = await self._ask("GET", f"/instance/connect/{self._name}")
        if _state(said) == "open":
            return Link(open=True)
        picture = said.get("base64")
        return Link(open=False, picture=Secret(picture) if isinstance(picture, str) else None)

    async def state(self) -> str:
        """`open` (linked), `connecting`, `close`, or `none` when there is no such instance."""
        said = await self._ask("GET", f"/instance/connectionState/{self._name}", fine=(200, 404))
        return _state(said) or "none"

    async def logout(self) -> None:
        """Ends the link; that there is none, or no instance, is as good."""
        # 400 is the answer for an instance that is not connected.
        await self._ask("DELETE", f"/instance/logout/{self._name}", fine=(200, 400, 404))

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    @property
    def _name(self) -> str:
        return quote(self.instance, safe="")

    async def _ask(
        self, method: str, path: str, *, json: Any = None, fine: tuple[int, ...] = (200,)
    ) -> dict[str, Any]:
        try:
            reply = await self._http.request(method, path, json=json)
        except httpx2.TransportError as error:
            raise Unreachable(f"the WhatsApp service cannot be reached ({type(error).__name__})") from error
        if reply.status_code == 429 or reply.status_code >= 500:
            raise Unreachable(f"the WhatsApp service is out of order ({reply.status_code})")
        if reply.status_code not in fine:
            raise Refused(_why(reply))
        said = _members(reply)
        # `connect` answers 200 also when it failed.
        if said.get("error") is True:
            raise Refused("the WhatsApp service refused")
        return said


def _why(reply: httpx2.Response) -> str:
    if reply.status_code == 401:
        return "the WhatsApp service does not know the key in EVOLUTION_KEY"
    return f"the WhatsApp service refused ({reply.status_code})"


def _members(reply: httpx2.Response) -> dict[str, Any]:
    try:
        said = reply.json()
    except ValueError as error:
        raise Unreachable("what answers is not the WhatsApp service") from error
    return said if isinstance(said, dict) else {}


def _state(said: dict[str, Any]) -> str | None:
    instance = said.get("instance")
    state = instance.get("state") if isinstance(instance, dict) else None
    return state if isinstance(state, str) else None
