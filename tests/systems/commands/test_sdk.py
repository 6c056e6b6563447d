"""Handlers: how they are registered, run, told to stop, and what becomes of what they raise."""

import asyncio
import logging
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from farhand.agent.config import ConfigError
from farhand.agent.handler import ResultDraft, Setup
from farhand.model.clock import SystemClock
from farhand.protocol.agent import ClaimedJob
from farhand.systems.commands import Cancelled, Commands, Context, Fatal, RegistryError, Retryable, Secret
from farhand.systems.commands.handler import CommandsHandler, from_setup
from farhand.systems.commands.loading import load_registry
from farhand.testing.commands import _job, _Tools, run_handler, run_handler_async
from tests.peers.printers import until

CODE = "2@AbCdEf-the-code-that-links-a-phone"
PARAM = "a-name-that-only-params-hold"


# Registering


def test_a_decorated_handler_stays_what_it_was() -> None:
    commands = Commands()

    @commands.on("shop.open")
    def opened(params: Any, ctx: Context) -> str:
        return f"opened {params['name']}"

    assert opened({"name": "a"}, None) == "opened a"  # type: ignore[arg-type]  (called plainly)
    assert list(commands.handlers) == ["shop.open"]


@pytest.mark.parametrize("name", ["", "Shop.open", "shop open", "shop.", ".open", "shop..open", "x" * 101])
def test_what_is_no_type_is_refused(name: str) -> None:
    with pytest.raises(RegistryError, match="whatsapp.connect"):
        Commands().on(name)


def test_a_type_has_one_handler() -> None:
    commands = Commands()
    commands.on("shop.open")(lambda params, ctx: None)
    with pytest.raises(RegistryError, match="shop.open"):
        commands.on("shop.open")(lambda params, ctx: None)
    other = Commands()
    other.on("shop.open")(lambda params, ctx: None)
    with pytest.raises(RegistryError, match="shop.open"):
        commands.include(other)


@pytest.mark.parametrize("function", [lambda: None, lambda params: None, lambda a, b, c: None, 7])
def test_what_does_not_take_params_and_context_is_refused(function: Any) -> None:
    with pytest.raises(RegistryError, match=r"\(params, ctx\)"):
        Commands().on("shop.open")(function)


def test_registries_know_nothing_of_each_other() -> None:
    one, two = Commands(), Commands()
    one.on("shop.open")(lambda params, ctx: 1)
    two.on("shop.open")(lambda params, ctx: 2)
    assert run_handler(one, type="shop.open").result == 1
    assert run_handler(two, type="shop.open").result == 2


def test_handlers_are_bound_to_their_provider_when_registered() -> None:
    class Provider:
        def __init__(self, name: str) -> None:
            self.name = name

        async def who(self, params: Any, ctx: Context) -> str:
            return self.name

    commands = Commands()
    commands.on("who")(Provider("the only one").who)
    assert run_handler(commands, {"provider": "another"}, type="who").result == "the only one"


# What comes of a run


@pytest.mark.parametrize("kind", ["sync", "async", "object"])
def test_every_sort_of_handler_gets_params_and_context_and_gives_a_result(kind: str) -> None:
    def plain(params: Any, ctx: Context) -> dict[str, Any]:
        ctx.report("looking", "the cupboard is dark")
        ctx.heartbeat()
        where = threading.current_thread() is threading.main_thread()
        return {"params": params, "attempt": ctx.attempt, "type": ctx.type, "main": where}

    async def asynchronous(params: Any, ctx: Context) -> dict[str, Any]:
        await asyncio.sleep(0)
        return plain(params, ctx)

    class Called:
        async def __call__(self, params: Any, ctx: Context) -> dict[str, Any]:
            return await asynchronous(params, ctx)

    handler: Any = {"sync": plain, "async": asynchronous, "object": Called()}[kind]
    ran = run_handler(handler, {"a": [1, None]}, type="shop.look", attempt=3)
    assert ran.status == "completed"
    assert ran.result == {
        "params": {"a": [1, None]},
        "attempt": 3,
        "type": "shop.look",
        "main": kind != "sync",
    }
    assert ran.reports == (("looking", "the cupboard is dark"),)
    assert ran.heartbeats == 1
    assert ran.secret_fields == ()


@dataclass
class Answer:
    """A result as a class of the handler's own."""

    state: str
    qr: Secret[str]


def test_a_result_with_a_secret_is_revealed_only_on_the_wire() -> None:
    async def connect(params: Any, ctx: Context) -> Answer:
        return Answer(state="scan", qr=Secret(CODE))

    ran = run_handler(connect)
    assert ran.secret_fields == ("qr",)
    assert ran.result == {"state": "scan", "qr": CODE}
    assert CODE not in repr(ran)


def declared(*fields: str) -> ClaimedJob:
    return msgspec.structs.replace(_job("test.command", {}, 1), secret_fields=[*fields])


def returning(result: Any) -> CommandsHandler:
    commands = Commands()
    commands.on("test.command")(lambda params, ctx: result)
    return CommandsHandler(commands)


@pytest.mark.parametrize(
    "result",
    [
        {"qr": Secret(CODE)},
        {"qr": [{"deep": Secret(CODE)}]},
        {"qr": Secret({"inner": [Secret(CODE)]})},
        Answer(state="scan", qr=Secret(CODE)),
        {"qr": CODE},
        Secret(CODE),
        [Secret(CODE)],
        CODE,
    ],
)
async def test_a_draft_with_a_secret_is_kept_off_the_disk_and_out_of_reprs(result: Any) -> None:
    draft = await returning(result).run(declared("qr"), _Tools(None))
    assert draft.ok
    assert draft.durable is False
    assert CODE not in repr(draft)
    assert CODE not in repr(draft.result)
    assert CODE.encode() in msgspec.json.encode(draft.result)


@pytest.mark.parametrize("fields", [(), ("other",)])
@pytest.mark.parametrize(
    "result", [{"state": "scan", "qr": [Secret(CODE)]}, Answer(state="s", qr=Secret(CODE))]
)
async def test_a_secret_that_the_server_would_keep_in_clear_is_not_sent(
    result: Any, fields: tuple[str, ...]
) -> None:
    draft = await returning(result).run(declared(*fields), _Tools(None))
    assert (draft.ok, draft.retryable, draft.result) == (False, False, None)
    assert "in clear: qr; add it to secret_fields of" in str(draft.error)
    assert CODE not in repr(draft)


async def test_a_result_without_secrets_is_durable() -> None:
    draft = await returning({"state": "open"}).run(declared("qr"), _Tools(None))
    assert (draft.ok, draft.durable, draft.result) == (True, True, {"state": "open"})


def test_what_json_does_not_know_fails_for_good_and_is_not_quoted() -> None:
    ran = run_handler(lambda params, ctx: {"when": object(), "what": PARAM})
    assert (ran.status, ran.retryable) == ("failed", False)
    assert ran.error is not None
    assert "builtins.object" in ran.error
    assert PARAM not in ran.error
    surrogate = run_handler(lambda params, ctx: {"what": "\ud800" + PARAM})
    assert surrogate.status == "failed"
    assert PARAM not in str(surrogate.error)


def test_retryable_says_when_and_fatal_says_never() -> None:
    def away(params: Any, ctx: Context) -> None:
        raise Retryable("Evolution cannot be reached", after_ms=7_000)

    async def never(params: Any, ctx: Context) -> None:
        raise Fatal("this provider cannot be linked by QR")

    ran = run_handler(away)
    assert (ran.status, ran.error, ran.retryable, ran.after_ms) == (
        "failed",
        "Evolution cannot be reached",
        True,
        7_000,
    )
    ran = run_handler(never)
    assert (ran.status, ran.error, ran.retryable) == ("failed", "this provider cannot be linked by QR", False)


def _quotes_its_params(params: Any) -> None:
    try:
        {}[params["name"]]
    except KeyError as error:
        raise RuntimeError(f"no {params['name']} and {CODE}") from error


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_unknown_exception_is_retryable_and_neither_log_nor_server_gets_its_text(
    asynchronous: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def plain(params: Any, ctx: Context) -> None:
        _quotes_its_params(params)

    async def awaited(params: Any, ctx: Context) -> None:
        _quotes_its_params(params)

    with caplog.at_level(logging.DEBUG):
        ran = run_handler(awaited if asynchronous else plain, {"name": PARAM})
    assert (ran.status, ran.retryable) == ("failed", True)
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    told = f"{ran} {ran.error} {record.getMessage()} {record.__dict__} {caplog.text}"
    assert PARAM not in told
    assert CODE not in told
    fields: dict[str, Any] = record.__dict__
    assert fields["error"] == "builtins.RuntimeError < builtins.KeyError"
    assert "_quotes_its_params" in fields["trace"]
    assert f"{__file__}:" in fields["trace"]
    assert ran.error == "the handler failed: RuntimeError; the agent's log says where"


def test_even_sys_exit_in_a_thread_ends_the_command_alone() -> None:
    ran = run_handler(lambda params, ctx: sys.exit(3))
    assert (ran.status, ran.retryable) == ("failed", True)


def test_a_phase_must_be_a_word() -> None:
    def shouting(params: Any, ctx: Context) -> None:
        ctx.report("Not A Word")

    ran = run_handler(shouting)
    assert ran.error == "the handler failed: ValueError; the agent's log says where"


async def test_a_type_without_a_handler_is_refused_with_what_there_is() -> None:
    commands = Commands()
    commands.on("shop.open")(lambda params, ctx: None)
    draft = await CommandsHandler(commands).run(_job("shop.close", {}, 1), _Tools(None))
    assert (draft.ok, draft.retryable) == (False, False)
    assert draft.error == "this agent has no handler for shop.close; it has shop.open"


# Being told to stop


def test_a_sync_handler_hears_of_a_cancel_at_its_next_heartbeat() -> None:
    steps: list[int] = []

    def long(params: Any, ctx: Context) -> None:
        for step in range(1_000_000):
            steps.append(step)
            ctx.heartbeat()

    ran = run_handler(long, cancel_on=3)
    assert ran.status == "cancelled"
    assert len(steps) < 1_000_000


def test_a_sync_handler_can_wait_for_the_cancel() -> None:
    def patient(params: Any, ctx: Context) -> None:
        ctx.report("waiting")
        assert ctx.cancelled.wait(10)
        raise Cancelled

    assert run_handler(patient, cancel_on="waiting").status == "cancelled"


def test_an_async_handler_is_cancelled_as_a_task_and_can_clean_up() -> None:
    cleaned: list[bool] = []

    async def long(params: Any, ctx: Context) -> None:
        try:
            ctx.report("waiting")
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(ctx.cancelled.is_set())

    assert run_handler(long, cancel_on="waiting").status == "cancelled"
    assert cleaned == [True]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_was_done_before_the_cancel_arrived_still_counts(asynchronous: bool) -> None:
    def plain(params: Any, ctx: Context) -> str:
        ctx.report("done")
        ctx.cancelled.wait(10)
        return "done all the same"

    async def awaited(params: Any, ctx: Context) -> str:
        ctx.report("done")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done all the same"
        return "never"

    ran = run_handler(awaited if asynchronous else plain, cancel_on="done")
    assert (ran.status, ran.result) == ("completed", "done all the same")


def test_what_failed_because_of_the_stop_counts_as_stopped() -> None:
    def plain(params: Any, ctx: Context) -> None:
        ctx.report("waiting")
        ctx.cancelled.wait(10)
        raise Retryable("the connection was closed")

    assert run_handler(plain, cancel_on="waiting").status == "cancelled"


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_handler_that_stops_by_itself_is_tried_again(asynchronous: bool) -> None:
    def plain(params: Any, ctx: Context) -> None:
        raise Cancelled

    async def awaited(params: Any, ctx: Context) -> None:
        raise asyncio.CancelledError

    ran = run_handler(awaited if asynchronous else plain)
    assert (ran.status, ran.retryable) == ("failed", True)
    assert ran.error == "the handler stopped without being told to"


def test_a_handler_that_does_not_listen_is_left_behind_after_its_grace() -> None:
    released = threading.Event()
    ended = threading.Event()

    def deaf(params: Any, ctx: Context) -> None:
        ctx.report("deaf")
        released.wait(20)
        ctx.report("late")
        ended.set()

    ran = run_handler(deaf, cancel_on="deaf", grace_ms=50)
    assert ran.status == "cancelled"
    released.set()
    assert ended.wait(10)
    assert ran.reports == (("deaf", None),)


async def test_a_handler_that_does_not_end_in_time_fails_the_test_that_runs_it() -> None:
    async def forever(params: Any, ctx: Context) -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await run_handler_async(forever, timeout_ms=50, grace_ms=50)


# How many at once


async def test_no_more_run_at_once_than_the_type_allows_also_when_one_was_left_behind() -> None:
    commands, release = Commands(), threading.Event()
    at_work: list[str] = []

    @commands.on("one.at.a.time", grace_ms=20)
    def slow(params: Any, ctx: Context) -> str:
        at_work.append(params)
        release.wait(20)
        return params

    @commands.on("another")
    async def quick(params: Any, ctx: Context) -> str:
        return params

    handler = CommandsHandler(commands)
    assert handler.own_lane == 2
    first = asyncio.create_task(handler.run(_job("one.at.a.time", "first", 1), _Tools(None)))
    await until(lambda: at_work == ["first"], "the first is at work")
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    tools = _Tools(None)
    second = asyncio.create_task(handler.run(_job("one.at.a.time", "second", 1), tools))
    other = await handler.run(_job("another", "other", 1), _Tools(None))
    assert other.result == "other"
    await until(lambda: bool(tools.reports), "the second says that it waits")
    assert tools.reports == [("waiting", "another one.at.a.time is at work here")]
    assert at_work == ["first"]
    release.set()
    assert (await second).result == "second"


async def test_a_type_runs_as_many_at_once_as_it_allows() -> None:
    commands, full = Commands(), asyncio.Event()
    at_work: list[int] = []

    @commands.on("three", concurrency=3)
    async def meet(params: Any, ctx: Context) -> int:
        at_work.append(params)
        if len(at_work) == 3:
            full.set()
        await full.wait()
        return params

    handler = CommandsHandler(commands)
    assert handler.own_lane == 3
    async with asyncio.timeout(10):
        drafts: list[ResultDraft] = await asyncio.gather(
            *(handler.run(_job("three", number, 1), _Tools(None)) for number in range(3))
        )
    assert [draft.result for draft in drafts] == [0, 1, 2]


async def test_a_cancel_while_it_waits_for_its_turn_takes_nobodys_turn() -> None:
    commands, release = Commands(), asyncio.Event()

    @commands.on("single")
    async def hold(params: Any, ctx: Context) -> str:
        await release.wait()
        return params

    handler = CommandsHandler(commands)
    first = asyncio.create_task(handler.run(_job("single", "first", 1), _Tools(None)))
    tools = _Tools(None)
    waiting = asyncio.create_task(handler.run(_job("single", "waiting", 1), tools))
    await until(lambda: bool(tools.reports), "the second waits")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    release.set()
    assert (await first).result == "first"
    assert (await handler.run(_job("single", "third", 1), _Tools(None))).result == "third"


async def test_providers_are_freed_when_the_agent_ends_the_last_one_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    commands, freed = Commands(), list[str]()

    @commands.on_close
    def first() -> None:
        freed.append("first")

    @commands.on_close
    async def second() -> None:
        freed.append("second")
        raise OSError(f"{CODE} was gone already")

    await CommandsHandler(commands).aclose()
    assert freed == ["second", "first"]
    assert [record.getMessage() for record in caplog.records] == ["provider_not_freed"]
    assert CODE not in caplog.text


# Finding them


MODULE = """
from farhand.systems.commands import Commands
commands = Commands()
@commands.on("{type}")
def handler(params, ctx):
    return "{type}"
def build():
    made = Commands()
    made.on("built.{type}")(handler)
    return made
empty = Commands
"""


def package(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch, text: str = MODULE) -> str:
    (folder / f"{name}.py").write_text(text.replace("{type}", name))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


def test_a_registry_is_found_by_module_by_name_and_by_what_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = package(tmp_path, "handlers_found", monkeypatch)
    assert list(load_registry(name, tmp_path).handlers) == [name]
    assert list(load_registry(f"{name}:commands", tmp_path).handlers) == [name]
    assert list(load_registry(f"{name}:build", tmp_path).handlers) == [f"built.{name}"]


@pytest.mark.parametrize(
    ("reference", "word"),
    [
        ("handlers_lost", "there is no module handlers_lost"),
        ("handlers_there:nothing", "has no 'nothing'"),
        ("handlers_there:empty", "has no handlers"),
        ("handlers_there:__name__", "is no farhand.systems.commands.Commands"),
        (":x", "is no module"),
    ],
)
def test_what_cannot_be_found_is_named(
    reference: str, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, "handlers_there", monkeypatch)
    with pytest.raises(ConfigError, match=word):
        load_registry(reference, tmp_path)


def test_a_module_that_misses_another_one_says_so_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, "handlers_broken", monkeypatch, "import a_library_that_is_not_there")
    with pytest.raises(ModuleNotFoundError, match="a_library_that_is_not_there"):
        load_registry("handlers_broken", tmp_path)


def test_agent_toml_names_registries_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [package(tmp_path, name, monkeypatch) for name in ("handlers_a", "handlers_b")]
    section: dict[str, object] = {"handlers": names}
    setup = Setup(clock=SystemClock(), folder=tmp_path, section=section)
    assert from_setup(setup).own_lane == 2
    assert from_setup(Setup(clock=SystemClock(), folder=tmp_path)).kinds == ()
    with pytest.raises(ConfigError, match="did you mean 'handlers'"):
        from_setup(Setup(clock=SystemClock(), folder=tmp_path, section={"handler": "x"}))
    with pytest.raises(ConfigError, match="must be a text"):
        from_setup(Setup(clock=SystemClock(), folder=tmp_path, section={"handlers": [7]}))
