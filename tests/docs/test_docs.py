"""What there is has its place in the documentation, and what the documentation says is so."""

import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from farhand.egress import CODES as FETCH_CODES
from farhand.model.errors import CODES
from farhand.model.job import Evidence, State, Verb
from farhand.protocol import DIRECTIVES, PRINT_TYPES
from farhand.protocol.client import PrintOptions
from farhand.protocol.commands import STATUSES
from farhand.protocol.pulsar import ERRORS as PULSAR_ERRORS
from farhand.protocol.pulsar import REFUSED_CODE
from farhand.protocol.pulsar import STATES as PULSAR_STATES
from farhand.server import config as server_config
from farhand.server.serve import system_policies
from farhand.systems import configured, find_systems, load, tables_of
from farhand.systems.fetch.settings import read_settings as read_fetch_settings
from farhand.systems.printing.settings import read_settings
from scripts import docs as generator
from scripts.docs import BLOCK, ROOT, all_routes, commands, messages
from tests.docs.pages import Page, all_pages, doc, page

SRC = ROOT / "src" / "farhand"
PAGES = [pytest.param(entry, id=entry.name) for entry in all_pages()]
FIELD_TABLES = (
    *(
        "message",
        "policies",
        "command-policy",
        "settings",
        "agent-settings",
        "printing-settings",
        "fetch-agent-settings",
        "fetch-settings",
        "exit-codes-of-fetch",
        "grants",
    ),
)


def missing(words: Any, place: Page) -> list[str]:
    """The words that have neither a heading nor a table row."""
    headings = " ".join(place.headings)
    return [str(word) for word in words if str(word) not in place.rows and f"`{word}`" not in headings]


def test_every_route_has_a_section_made_from_the_route_table() -> None:
    protocol = doc("protocol")
    names = [f"{route.method} {route.path}" for route in all_routes()]
    headings = [heading.strip("`") for heading in protocol.headings]
    blocks = [
        match["argument"].strip() for match in BLOCK.finditer(protocol.text) if match["name"] == "route"
    ]
    assert sorted(names) == sorted(heading for heading in headings if re.match(r"[A-Z]+ /", heading))
    assert sorted(names) == sorted(blocks)
    for name in names:
        section = protocol.text.partition(f"### `{name}`\n")[2]
        assert section.lstrip().startswith(f"<!-- generated: route {name} -->"), name


def test_every_message_has_a_section() -> None:
    protocol = doc("protocol")
    tables = [m["argument"].strip() for m in BLOCK.finditer(protocol.text) if m["name"] == "message"]
    assert sorted(tables) == sorted(messages())
    assert [name for name in messages() if name not in protocol.headings] == []


def test_every_error_code_has_a_heading_and_no_other_has_one() -> None:
    headings = doc("protocol").headings
    start = headings.index("Error codes") + 1
    assert sorted(heading.strip("`") for heading in headings[start:]) == sorted(CODES)


def test_every_command_has_a_section_with_its_help() -> None:
    reference = doc("cli")
    helps = [m["argument"].strip() for m in BLOCK.finditer(reference.text) if m["name"] == "help"]
    assert helps == list(commands())
    assert [name for name in commands() if f"`{name}`" not in reference.headings] == []


@pytest.mark.parametrize(
    ("words", "name"),
    [
        pytest.param(tuple(State), "concepts", id="states"),
        pytest.param(tuple(Verb), "concepts", id="verbs"),
        pytest.param(tuple(Evidence), "concepts", id="evidence"),
        pytest.param(DIRECTIVES, "protocol", id="directives"),
        pytest.param(STATUSES, "systems/commands", id="statuses"),
        pytest.param(sorted(FETCH_CODES), "security", id="fetch codes"),
        pytest.param(tuple(PRINT_TYPES), "systems/printing", id="print types"),
        pytest.param(PrintOptions.__struct_fields__, "systems/printing", id="print options"),
        pytest.param(sorted(PULSAR_ERRORS), "systems/fetch", id="pulsar errors"),
        pytest.param(PULSAR_STATES, "systems/fetch", id="pulsar states"),
        pytest.param(tuple(State), "systems/fetch", id="states of a fetch"),
    ],
)
def test_every_word_has_a_row(words: tuple[str, ...], name: str) -> None:
    assert words
    assert missing(words, doc(name)) == []


def test_every_failure_of_a_fetch_has_a_row_and_no_other_has_one() -> None:
    made = re.compile(
        r'''(?:agent_failure\(|FetchError\(code=|_error\(\w+, |code = .* else )"([a-z]+(?:-[a-z]+)*)"'''
    )
    codes = {*FETCH_CODES, REFUSED_CODE} - {"target-status", "empty-body"}
    for path in (SRC / "systems" / "fetch").rglob("*.py"):
        codes.update(made.findall(path.read_text()))
    assert {"dns", "rate-limited", "agent-disk", "result-too-large"} <= codes
    table = doc("systems/fetch").text.partition("### Failure codes")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)) == sorted(codes)


@pytest.mark.parametrize(
    ("block", "name"),
    [
        ("policies", "concepts"),
        ("settings", "operations"),
        ("agent-settings", "operations"),
        ("printing-settings", "systems/printing"),
        ("fetch-agent-settings", "operations"),
        ("command-policy", "systems/commands"),
        ("exit-codes-of-fetch", "cli"),
        ("fetch-settings", "systems/fetch"),
        ("grants", "security"),
        ("state-diagram", "concepts"),
        ("transitions", "concepts"),
        ("routes", "protocol"),
        ("decisions", "adr/README"),
    ],
)
def test_each_generated_table_stands_in_its_place(block: str, name: str) -> None:
    assert block in [match["name"] for match in BLOCK.finditer(doc(name).text)]


@pytest.mark.parametrize("entry", PAGES)
def test_generated_blocks_are_up_to_date(entry: Page) -> None:
    assert generator.renew(entry.text) == entry.text, "run `make docs`"


@pytest.mark.parametrize("entry", PAGES)
def test_every_field_has_a_meaning(entry: Page) -> None:
    silent = [
        f"{match['name']} {match['argument'].strip()}: {row}"
        for match in BLOCK.finditer(entry.text)
        if match["name"] in FIELD_TABLES
        for row, meaning in generator.kept_column(match["body"]).items()
        if not meaning
    ]
    assert silent == []


def test_a_block_that_was_altered_by_hand_is_made_anew() -> None:
    text = doc("concepts").text
    altered = text.replace("| 60_000 (1 min) |", "| 61_000 |").replace("running: start", "running: stop")
    assert altered != text
    assert generator.renew(altered) == text


def test_what_people_wrote_is_kept_and_rows_that_are_gone_are_dropped() -> None:
    body = "| `id` | text | words of mine |\n| `left` | text | of no use |\n"
    made = generator.message("KeyView", body)
    assert "| `id` | text | words of mine |" in made
    assert "left" not in made
    assert "| `name` | text |  |" in made


def test_log_words_have_a_row() -> None:
    words: set[str] = set()
    for room in ("server", "agent", "storage", "systems"):
        for path in (SRC / room).rglob("*.py"):
            found = re.findall(r'\blog\.(?:info|warning|error|exception)\(\s*"([\w.-]+)', path.read_text())
            words.update(word.rstrip(".:") for word in found)
    assert {"request_failed", "job_taken"} <= words
    assert missing(sorted(words), doc("operations")) == []


def test_audited_actions_have_a_row() -> None:
    actions: set[str] = set()
    for path in (SRC / "storage").glob("*.py"):
        actions.update(re.findall(r'"((?:agents|keys|results)\.[a-z]+)"', path.read_text()))
    actions |= {f"agents.{state}" for state in ("paused", "draining", "active")}
    assert {"keys.create", "agents.revoke", "results.ack"} <= actions
    assert missing(sorted(actions), doc("security")) == []


@pytest.mark.parametrize("entry", PAGES)
def test_links_lead_somewhere(entry: Page) -> None:
    dead: list[str] = []
    for link in entry.links:
        if re.match(r"https?:", link):
            continue
        place, _, anchor = link.partition("#")
        target = (entry.path.parent / place).resolve() if place else entry.path
        if not target.is_file() or (anchor and anchor not in page(target).anchors):
            dead.append(link)
    assert dead == []


def test_the_link_check_sees_links_around_code() -> None:
    links = doc("protocol").links
    assert "#get-jobsid" in links
    assert "security.md#grants" in links
    assert len(links) > 200


@pytest.mark.parametrize("entry", PAGES)
def test_headings_can_be_told_apart(entry: Page) -> None:
    twice = [anchor for anchor, count in entry.anchors.items() if count > 1]
    if entry.name == "CHANGELOG.md":
        return
    assert twice == []


@pytest.mark.parametrize("entry", PAGES)
def test_shell_examples_are_shell_and_name_options_that_exist(entry: Page) -> None:
    known = commands()
    for block in entry.blocks("sh"):
        checked = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, f"{block}\n{checked.stderr}"
        for line in block.replace("\\\n", " ").splitlines():
            match = re.search(r"(?:^|\| )(?:sudo -u \S+ )?(?:\S*/)?farhand (.*)", line)
            if match is not None:
                check_command(match[1], known)


def check_command(line: str, known: dict[str, Any]) -> None:
    """The command is one, and knows the options that it is given."""
    words = shlex.split(re.split(r"\s(?:#|\||&)", f"{line} ")[0])
    name = "farhand"
    while words and f"{name} {words[0]}" in known:
        name = f"{name} {words.pop(0)}"
    assert name != "farhand" or words[:1] == ["--help"], line
    options = {option for param in known[name].params for option in param.opts}
    used = {word.partition("=")[0] for word in words if re.match(r"--?\w", word)}
    assert used <= options, f"{name}: {used - options}"


def test_settings_shown_are_settings_there_are(tmp_path: Path) -> None:
    seen: set[str] = set()
    for entry in all_pages():
        for block in entry.blocks("toml"):
            table = tomllib.loads(block)
            if is_for_the_server(table):
                path = tmp_path / "farhand.toml"
                path.write_text(block)
                systems = find_systems(())
                settings = server_config.load(path, {}, tables=tables_of(systems))
                systems = configured(systems, settings.sections, load)
                server_config.policies(system_policies(systems), settings)
                seen |= table.keys()
            if "printing" in table:
                read_settings(table["printing"], tmp_path)
                seen.add("printing")
            if "fetch" in table and not is_for_the_server(table):
                read_fetch_settings(table["fetch"], tmp_path, table["server"])
                seen.add("fetch")
    assert seen == {"server", "policy", "commands", "printing", "fetch"}


def is_for_the_server(table: dict[str, Any]) -> bool:
    """Whether it is of farhand.toml: in agent.toml `server` is a text and `[commands]` names handlers."""
    if not isinstance(table.get("server", {}), dict) or "handlers" in table.get("commands", {}):
        return False
    return bool(table.keys() & {"server", "policy", "commands"})


@pytest.mark.parametrize("entry", PAGES)
def test_json_and_python_examples_can_be_read(entry: Page) -> None:
    for block in entry.blocks("json"):
        json.loads(block)
    for block in entry.blocks("python"):
        compile(block, entry.name, "exec")


def test_the_problem_shown_is_one_that_the_server_makes() -> None:
    (shown,) = [json.loads(block) for block in doc("protocol").blocks("json") if "/problems/" in block]
    kind = CODES[shown["code"]]
    assert (shown["status"], shown["title"], shown["retryable"]) == (kind.status, kind.title, kind.retryable)


def test_decisions_are_numbered_listed_and_whole() -> None:
    folder = ROOT / "docs" / "adr"
    decisions = sorted(path for path in folder.glob("*.md") if path.name != "README.md")
    assert [int(path.name[:4]) for path in decisions] == list(range(1, len(decisions) + 1))
    listed = page(folder / "README.md").links
    assert listed == [path.name for path in decisions]
    for path in decisions:
        shown = page(path)
        assert shown.headings[0].startswith(path.name[:4]), path.name
        assert shown.headings[1:] == ("Context", "Decision", "Rejected", "Consequences"), path.name
        assert "**Status:** " in shown.text


def test_no_page_is_an_orphan() -> None:
    linked = {
        (entry.path.parent / link.partition("#")[0]).resolve()
        for entry in all_pages()
        for link in entry.links
        if not re.match(r"https?:|#", link)
    }
    assert [entry.name for entry in all_pages() if entry.path not in linked | {ROOT / "README.md"}] == []


def test_make_docs_renews_the_pages() -> None:
    assert re.search(
        r"^docs: setup ## .+\n\t@\.venv/bin/python scripts/docs\.py", (ROOT / "Makefile").read_text(), re.M
    )
