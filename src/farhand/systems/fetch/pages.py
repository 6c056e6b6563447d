"""The browser agent: a page that is an agent, the page that explains it, and their files."""

from importlib import resources
from typing import Final

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
STATIC: Final = "/pulsar/agent/static/"
_SAID: Final = {
    "ui.html": "The page that is an agent",
    "install.html": "The page that explains how to install it",
}


def routes() -> list[Route]:
    """The two pages, and each file that they load."""
    folder = resources.files("farhand.systems.fetch") / "static"
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    paths = {**PAGES, **{STATIC + name: name for name in sorted(files) if not name.endswith(".html")}}
    return [
        Route(method="GET", path=path, handler=_serving(name, files[name]), grant=None, tag="pulsar",
              summary=_SAID.get(name, f"A file of the page: {name}"), replies={200: bytes})
        for path, name in paths.items()
    ]  # fmt: skip


def _serving(name: str, content: bytes) -> Handler:
    kind = TYPES[name.rpartition(".")[2]]
    content_type = (b"content-type", f"{kind}; charset=utf-8".encode())

    async def serve(_context: Context, call: Call) -> None:
        call.query(frozenset())
        await call.reply(200, content, content=content_type, headers=HEADERS)

    return serve
