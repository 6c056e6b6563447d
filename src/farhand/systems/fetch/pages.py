"""The browser agent: a page that is an agent, the page that explains it, and their files."""

from importlib import resources
from typing import Any, Final

from farhand.model.errors import Problem
from farhand.server.call import Call
from farhand.server.context import Context
from farhand.server.routes import Handler, Route

POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src *; frame-ancestors 'none'"
)
HEADERS: Final = (
    (b"content-security-policy", POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    # A server that is brought up to date serves its new agent at once, and no mixture of the two.
    (b"cache-control", b"no-cache"),
)
TYPES: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
PAGES: Final = {"/pulsar/agent/ui": "ui.html", "/pulsar/agent/install": "install.html"}
_SAID: Final = {
    "ui.html": "The page that is an agent",
    "install.html": "The page that explains how to install it",
}


def routes() -> list[Route]:
    """The two pages, and the files that they load."""
    folder = resources.files("farhand.systems.fetch") / "static"
    files = {file.name: file.read_bytes() for file in folder.iterdir()}

    async def static(_context: Context, call: Call) -> None:
        name = call.params[0]
        if name not in files or name in _SAID:
            raise Problem("not-found", "the agent's page has no such file")
        await _serve(call, name, files[name])

    pages = [
        Route(method="GET", path=path, handler=_page(name, files[name]), grant=None, tag="pulsar",
              summary=_SAID[name], replies={200: Any})
        for path, name in PAGES.items()
    ]  # fmt: skip
    return [
        *pages,
        Route(method="GET", path="/pulsar/agent/static/{name}", handler=static, grant=None, tag="pulsar",
              summary="A file of the agent's page", replies={200: Any}),
    ]  # fmt: skip


def _page(name: str, content: bytes) -> Handler:
    async def serve(_context: Context, call: Call) -> None:
        await _serve(call, name, content)

    return serve


async def _serve(call: Call, name: str, content: bytes) -> None:
    call.query(frozenset())
    kind = TYPES[name.rpartition(".")[2]]
    content_type = (b"content-type", f"{kind}; charset=utf-8".encode())
    await call.reply(200, content, content=content_type, headers=HEADERS)
