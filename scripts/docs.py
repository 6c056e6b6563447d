"""Writes the generated blocks of the documentation anew from the code.

usage: python scripts/docs.py [--check]

A block stands between `<!-- generated: NAME ARGUMENT -->` and `<!-- end -->`. In the tables of
fields the last column is written by hand: it is kept, row by row, when the rest is made anew.
"""

import dataclasses
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from msgspec import inspect as mi

from farhand.agent.config import AgentConfig
from farhand.cli import fetch_exits
from farhand.cli.main import main as cli
from farhand.engine.registry import AGENT_GRANTS, CLIENT_GRANTS
from farhand.model.errors import CODES
from farhand.model.job import State
from farhand.model.policy import COMMAND, Policy
from farhand.model.transitions import TRANSITIONS, diagram
from farhand.protocol import fetch
from farhand.protocol.client import PrintOptions
from farhand.server import api
from farhand.server.config import ServerConfig
from farhand.server.routes import Route
from farhand.systems import find_systems, load
from farhand.systems.commands.declare import FIELDS, SCHEMA
from farhand.systems.farm.rules import table as farm_table
from farhand.systems.fetch.declare import FetchRules
from farhand.systems.fetch.settings import FetchSettings as FetchAgentSettings
from farhand.systems.printing.settings import PrintingSettings

ROOT: Final = Path(__file__).resolve().parent.parent
BLOCK: Final = re.compile(
    r"<!-- generated: (?P<name>\S+)(?P<argument>[^\n]*?) -->\n(?P<body>.*?)<!-- end -->", re.DOTALL
)
WIDTH: Final = 100
PROTOCOL: Final = "protocol.md"

BY_HAND: Final[dict[str, type[msgspec.Struct]]] = {
    cls.__name__: cls
    for cls in (
        PrintOptions,
        fetch.FetchSubmit,
        fetch.FetchRequest,
        fetch.FetchResult,
        fetch.TlsReport,
        fetch.RedirectReport,
        fetch.TimingReport,
        fetch.RangeReport,
        fetch.FetchError,
    )
}
"""Messages that no route takes whole."""

Generator = Callable[[str, str], str]


def pages() -> list[Path]:
    """Every page of the documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def renew(text: str) -> str:
    """A page with its blocks made anew. Raises LookupError for a block nobody can make."""

    def one(match: re.Match[str]) -> str:
        name, argument = match["name"], match["argument"].strip()
        body = GENERATORS[name](argument, match["body"])
        return f"<!-- generated: {name}{match['argument']} -->\n{body.rstrip()}\n<!-- end -->"

    return BLOCK.sub(one, text)


def all_routes() -> list[Route]:
    """The server's own routes and those of the systems here."""
    found = api.routes()
    for system in find_systems():
        if system.routes is not None:
            found += load(system.routes)()
    return found


def messages() -> dict[str, type[msgspec.Struct]]:
    """Every message that a route takes or gives, by name, and the messages inside them."""
    found: dict[str, type[msgspec.Struct]] = {}
    for route in all_routes():
        for entry in (route.request, route.failure, *route.replies.values()):
            message = entry[0] if isinstance(entry, list) else entry
            if isinstance(message, type) and issubclass(message, msgspec.Struct):
                _collect(message, found)
    return found


def _collect(message: type[msgspec.Struct], found: dict[str, type[msgspec.Struct]]) -> None:
    if message.__name__ in found:
        return
    found[message.__name__] = message
    for inner in _structs(mi.type_info(message)):
        _collect(inner, found)


def _structs(info: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(info, mi.StructType):
        for field in info.fields:
            for inner in _parts(field.type):
                if isinstance(inner, mi.StructType):
                    yield inner.cls


def _parts(info: Any) -> Iterator[Any]:
    yield info
    if isinstance(info, mi.UnionType):
        for option in info.types:
            yield from _parts(option)
    elif isinstance(info, mi.ListType):
        yield from _parts(info.item_type)


def commands(
    group: click.Group | None = None, path: tuple[str, ...] = ("farhand",)
) -> dict[str, click.Command]:
    """Every command by its whole name."""
    group = group or cli
    found: dict[str, click.Command] = {" ".join(path): group}
    context = click.Context(group, info_name=path[-1])
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            found |= commands(command, (*path, name))
        elif command is not None:
            found[" ".join((*path, name))] = command
    return found


def slug(heading: str) -> str:
    """The anchor under which a heading can be linked to, as GitHub makes it."""
    kept = re.sub(r"[^\w\- ]", "", heading.lower().strip())
    return kept.replace(" ", "-")


def kept_column(body: str) -> dict[str, str]:
    """The last column of a table by what stands in the first."""
    kept: dict[str, str] = {}
    for line in body.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) > 1 and cells[0].startswith("`"):
            kept[cells[0]] = cells[-1]
    return kept


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]], body: str) -> str:
    """A table whose last column is what people wrote."""
    kept = kept_column(body)
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join((*row, kept.get(row[0], '')))} |" for row in rows]
    return "\n".join(lines)


_PLAIN: Final[dict[type, str]] = {
    mi.BoolType: "true or false",
    mi.TupleType: "pair",
    mi.DictType: "object",
    mi.RawType: "object",
    mi.AnyType: "any JSON",
}


def words(info: Any) -> str:
    """A field's type in words."""
    match info:
        case mi.UnionType(types=options):
            shown = [words(option) for option in options if not isinstance(option, mi.NoneType)]
            optional = any(isinstance(option, mi.NoneType) for option in options)
            return " or ".join([*shown, *(["null"] if optional else [])])
        case mi.StrType():
            return _text_words(info)
        case mi.IntType():
            return _number_words(info)
        case mi.FloatType():
            return _decimal_words(info)
        case mi.LiteralType():
            return _choice_words(info)
        case mi.ListType(item_type=item, max_length=most):
            limit = f"of at most {most}" if most is not None else "of any length"
            return f"list {limit}: {words(item)}"
        case mi.StructType(cls=cls):
            return f"[{cls.__name__}]({PROTOCOL}#{slug(cls.__name__)})"
        case _:
            return _PLAIN[type(info)]


def _text_words(info: mi.StrType) -> str:
    pattern = (info.pattern or "").replace(r"$(?!\n)", "$")
    choice = re.fullmatch(r"\^\(([\w|-]+)\)\$", pattern)
    if choice is not None:
        return " or ".join(f"`{word}`" for word in choice[1].split("|"))
    low, high = info.min_length, info.max_length
    size = ""
    if low is not None and low == high:
        size = f" of {low}"
    elif high is not None:
        size = f", {low} to {high} long" if low else f", at most {high} long"
    shape = f", `{pattern}`" if pattern else ""
    return f"text{size}{shape}".replace("|", r"\|")


def _number_words(info: mi.IntType) -> str:
    if info.ge is not None and info.le is not None and info.le < fetch.SIZE_MAX:
        return f"{info.ge} to {info.le}"
    return "whole number" if info.ge is None else f"at least {info.ge}"


def _choice_words(info: mi.LiteralType) -> str:
    return " or ".join(f"`{option}`" for option in info.values)


def _decimal_words(info: mi.FloatType) -> str:
    low, high = info.gt if info.ge is None else info.ge, info.le
    if low is None or high is None:
        return "number"
    return f"number from {low:g} to {high:g}" if info.gt is None else f"number above {low:g}, to {high:g}"


def _shown(value: object) -> str:
    if value is None or value is msgspec.UNSET:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'`"{value}"`'
    if isinstance(value, int):
        return f"{value:_}" if value >= 10_000 else str(value)
    if isinstance(value, tuple | list):
        return ", ".join(_shown(item) for item in value) or "none"
    return f"`{value}`"


_UNITS: Final = {
    "_ms": (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)),
    "_max": (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)),
}


def _measured(name: str, value: object) -> str:
    """A value with its size in the largest unit that it is a whole number of."""
    plain = _shown(value)
    if not isinstance(value, int) or isinstance(value, bool) or value == 0:
        return plain
    bytes_only = not name.endswith("_max") or "bytes" in name or "inline" in name
    for ending, units in _UNITS.items():
        for unit, size in units:
            if name.endswith(ending) and bytes_only and value % size == 0:
                return f"{plain} ({value // size} {unit})"
    return plain


def _default(field: mi.Field) -> str:
    if field.required:
        return "required"
    if field.default is not msgspec.NODEFAULT:
        return _shown(field.default)
    return "–" if field.default_factory is msgspec.NODEFAULT else "empty"


def message(argument: str, body: str) -> str:
    """The fields of a message."""
    cls = messages().get(argument) or BY_HAND[argument]
    info = mi.type_info(cls)
    assert isinstance(info, mi.StructType)
    asks = info.forbid_unknown_fields
    rows: list[tuple[str, ...]] = []
    for field in info.fields:
        row = (f"`{field.encode_name}`", words(field.type).replace(f"({PROTOCOL}#", "(#"))
        rows.append((*row, _default(field)) if asks else row)
    head = ("field", "type", "default", "meaning") if asks else ("field", "type", "meaning")
    return _table(head, rows, body)


def _message_link(entry: Any) -> str:
    if isinstance(entry, list):
        item, *others = entry
        if others:
            return f"`{{items}}`, each {_message_link(item)} or a [problem](#errors)"
        return f"`{{items, next}}` of {_message_link(item)}"
    if isinstance(entry, type) and issubclass(entry, msgspec.Struct):
        return f"[{entry.__name__}](#{slug(entry.__name__)})"
    return {
        None: "no body",
        bytes: "the bytes",
        Any: "the bytes, or JSON",
        str: "text",
        dict: "a JSON object",
    }[entry]


def route(argument: str, body: str) -> str:
    """What a route needs, takes and gives."""
    method, path = argument.split()
    (found,) = [one for one in all_routes() if (one.method, one.path) == (method, path)]
    needs = {None: "no key", "any key": "the key that the agent presents"}.get(
        found.grant, f"[`{found.grant}`](security.md#grants)"
    )
    lines = [f"{found.summary}.", "", f"- **Needs:** {needs}"]
    if found.query:
        lines.append(f"- **Query:** {', '.join(f'`{name}`' for name in found.query)}")
    if found.request is not None:
        optional = " (may be left out)" if found.request_optional else ""
        lines.append(f"- **Body:** {_message_link(found.request)}{optional}")
    replies = [f"{status} {_message_link(entry)}" for status, entry in found.replies.items()]
    lines.append(f"- **Replies:** {'; '.join(replies)}")
    if found.failure is not None:
        lines.append(f"- **Errors:** {_message_link(found.failure)}")
    if found.held:
        lines.append("- **May be held** until there is something to say")
    return "\n".join(lines)


def route_list(argument: str, body: str) -> str:
    """All routes with links to their sections."""
    rows: list[str] = []
    for one in all_routes():
        name = f"{one.method} {one.path}"
        rows.append(f"| [`{name}`](#{slug(name)}) | {one.summary} | {one.grant or '–'} |")
    return "\n".join(["| route | what it does | needs |", "|---|---|---|", *rows])


def farm_states(argument: str, body: str) -> str:
    """What becomes of a farm's job when its printer is seen in some state."""
    return farm_table()


def code(argument: str, body: str) -> str:
    """An error code's status, title and whether trying again can help."""
    kind = CODES[argument]
    again = "trying again can help" if kind.retryable else "the same request will fail again"
    return f"**{kind.status}** · {kind.title} · {again}."


def grants(argument: str, body: str) -> str:
    """Every grant and the routes that ask for it."""
    rows: list[tuple[str, ...]] = []
    for grant in (*CLIENT_GRANTS, *AGENT_GRANTS):
        holder = "an agent" if grant in AGENT_GRANTS else "a client key"
        asking = [f"`{one.method} {one.path}`" for one in all_routes() if one.grant == grant]
        rows.append((f"`{grant}`", holder, ", ".join(asking) or "–"))
    return _table(("grant", "held by", "routes", "meaning"), rows, body)


def _kind_words(hint: Any) -> str:
    options = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    return " or ".join(_one_kind(option) for option in options)


def _one_kind(option: Any) -> str:
    if typing.get_origin(option) is typing.Literal:
        return " or ".join(f'`"{word}"`' for word in typing.get_args(option))
    if typing.get_origin(option) is tuple:
        return "list"
    plain = {type(None): '`"none"`', int: "whole number", bool: "true or false", str: "text", Path: "path"}
    return plain[option]


def policies(argument: str, body: str) -> str:
    """The policy fields and their values for each kind here; kinds with equal values share a column."""
    columns: dict[Policy, list[str]] = {}
    for system in find_systems(()):
        for kind, policy in system.policies.items():
            columns.setdefault(policy, []).append(f"`{kind}`")
    hints = typing.get_type_hints(Policy)
    rows = [
        (f"`{field.name}`", _kind_words(hints[field.name]))
        + tuple(_measured(field.name, getattr(policy, field.name)) for policy in columns)
        for field in dataclasses.fields(Policy)
    ]
    head = ("field", "takes", *(", ".join(kinds) for kinds in columns.values()), "meaning")
    return _table(head, rows, body)


def command_policy(argument: str, body: str) -> str:
    """The fields that a command type may set and what they are without."""
    hints = typing.get_type_hints(Policy)
    rows: list[tuple[str, ...]] = [
        (f"`{name}`", _kind_words(hints[name]), _measured(name, getattr(COMMAND, name))) for name in FIELDS
    ]
    rows.append((f"`{SCHEMA}`", "table", "–"))
    return _table(("field", "takes", "default", "meaning"), rows, body)


def _fields(cls: type, skipped: tuple[str, ...], body: str, *, none: str) -> str:
    """The settings of a class; its mappings are tables of their own, described elsewhere."""
    hints = typing.get_type_hints(cls)
    rows: list[tuple[str, ...]] = []
    for field in dataclasses.fields(cls):
        if field.name in skipped or typing.get_origin(hints[field.name]) is Mapping:
            continue
        options = [
            o for o in (typing.get_args(hints[field.name]) or (hints[field.name],)) if o is not type(None)
        ]
        optional = typing.get_origin(hints[field.name]) is types.UnionType
        kind = _one_kind(options[0] if optional else hints[field.name])
        value = none if field.default is dataclasses.MISSING else _measured(field.name, field.default)
        rows.append((f"`{field.name}`", kind, value))
    return _table(("setting", "takes", "default", "meaning"), rows, body)


def settings(argument: str, body: str) -> str:
    """The `[server]` settings."""
    return _fields(ServerConfig, (), body, none="")


def agent_settings(argument: str, body: str) -> str:
    """The settings of agent.toml outside the tables of systems."""
    return _fields(AgentConfig, ("folder",), body, none="see there")


def printing_settings(argument: str, body: str) -> str:
    """The `[printing]` table of agent.toml."""
    return _fields(PrintingSettings, (), body, none="")


def fetch_agent_settings(argument: str, body: str) -> str:
    """The `[fetch]` table of agent.toml."""
    return _fields(FetchAgentSettings, (), body, none="–")


def fetch_settings(argument: str, body: str) -> str:
    """The `[fetch]` table of farhand.toml."""
    return _fields(FetchRules, (), body, none="–")


def state_diagram(argument: str, body: str) -> str:
    """The transition table as a diagram."""
    return f"```mermaid\n{diagram()}```"


def transitions(argument: str, body: str) -> str:
    """The transition table as one."""
    lines = ["| from | verb | to |", "|---|---|---|"]
    for (source, verb), targets in TRANSITIONS.items():
        order = [str(state) for state in State if state in targets]
        lines.append(f"| {source or '–'} | {verb} | {', '.join(order)} |")
    return "\n".join(lines)


def decisions(argument: str, body: str) -> str:
    """The decisions in docs/adr, by number and title."""
    lines = ["| | |", "|---|---|"]
    for path in sorted((ROOT / "docs" / "adr").glob("[0-9]*.md")):
        number, _, title = (
            path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ").partition(" ")
        )
        lines.append(f"| [{number}]({path.name}) | {title} |")
    return "\n".join(lines)


def help_text(argument: str, body: str) -> str:
    """What `--help` says."""
    command = commands()[argument]
    context = click.Context(
        command, info_name=argument, max_content_width=WIDTH, terminal_width=WIDTH, **cli.context_settings
    )
    return f"```text\n{inspect.cleandoc(command.get_help(context))}\n```"


def exit_codes_of_fetch(argument: str, body: str) -> str:
    """The exit codes of `farhand fetch`, and the failures behind each."""
    found: dict[int, list[str]] = {0: [], 1: [], 2: [], 130: []}
    for number in (fetch_exits.PARTIAL, fetch_exits.UNWELCOME, fetch_exits.UNWRITTEN):
        found[number] = []
    for code, number in (*fetch_exits.BY_CODE.items(), *fetch_exits.BY_STATE.items()):
        found.setdefault(number, []).append(f"`{code}`")
    for source, number in fetch_exits.BY_SOURCE.items():
        found.setdefault(number, []).append(f"any other of source `{source}`")
    rows = [(f"`{number}`", ", ".join(found[number]) or "–") for number in sorted(found)]
    return _table(("exit code", "code of the failure", "means"), rows, body)


GENERATORS: Final[dict[str, Generator]] = {
    "agent-settings": agent_settings,
    "code": code,
    "command-policy": command_policy,
    "decisions": decisions,
    "exit-codes-of-fetch": exit_codes_of_fetch,
    "grants": grants,
    "help": help_text,
    "message": message,
    "policies": policies,
    "printing-settings": printing_settings,
    "fetch-agent-settings": fetch_agent_settings,
    "fetch-settings": fetch_settings,
    "route": route,
    "routes": route_list,
    "farm-states": farm_states,
    "settings": settings,
    "state-diagram": state_diagram,
    "transitions": transitions,
}


def main(arguments: list[str]) -> int:
    """Renews every page, or with --check says which are out of date."""
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    stale = 0
    for path in pages():
        before = path.read_text(encoding="utf-8")
        after = renew(before)
        if after == before:
            continue
        stale += 1
        print(f"docs: {path.relative_to(ROOT)} {'is out of date' if arguments else 'renewed'}")
        if not arguments:
            path.write_text(after, encoding="utf-8")
    return 1 if arguments and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
