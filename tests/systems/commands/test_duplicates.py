"""Two duplicates, two guards: one request that comes twice, and two requests for the same thing."""

import http.client
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.peers.postgres import PostgresServer
from tests.server.child import Child, process
from tests.server.serving import ROOT, Server
from tests.systems.commands.conftest import SECTIONS, Worker, issue, try_issue, worker

REPO = Path(__file__).resolve().parents[3]
PER_SERVER = 2


@pytest.fixture
def agent(server: Server) -> Worker:
    return worker(server)


def test_the_same_key_is_the_command_already_made(server: Server, agent: Worker) -> None:
    body = {"params": {"instance": "shop"}, "idempotency_key": f"of {agent.name}"}
    made = issue(server, agent, "whatsapp.connect", **body)
    assert try_issue(server, agent, "whatsapp.connect", **body).ok(200)["uuid"] == made["uuid"]
    assert try_issue(server, agent.id, "whatsapp.connect", **body).ok(200)["uuid"] == made["uuid"]
    agent.report(agent.collect(), status="completed").ok()
    again = try_issue(server, agent, "whatsapp.connect", **body).ok(200)
    assert (again["uuid"], again["status"]) == (made["uuid"], "completed")


def test_the_same_key_with_another_body_is_refused(server: Server, agent: Worker) -> None:
    key = f"of {agent.name}"
    issue(server, agent, "whatsapp.connect", idempotency_key=key, params={"instance": "shop"})
    for other in ({"params": {"instance": "bar"}}, {"expires_in": 60}, {"params": {}}):
        reply = try_issue(server, agent, "whatsapp.connect", idempotency_key=key, **other)
        reply.problem(422, "idempotency-mismatch")
    try_issue(server, agent, "whatsapp.status", idempotency_key=key).problem(422, "idempotency-mismatch")


def test_a_key_in_the_header_is_the_same_as_one_in_the_body(server: Server, agent: Worker) -> None:
    key = f"of {agent.name}"
    headers = {"Idempotency-Key": f'"{key}"'}
    made = issue(server, agent, headers=headers)
    assert try_issue(server, agent, idempotency_key=key).ok(200)["uuid"] == made["uuid"]
    assert try_issue(server, agent, idempotency_key=key, headers=headers).ok(200)["uuid"] == made["uuid"]
    refused = try_issue(server, agent, idempotency_key="other", headers=headers).problem(422, "bad-field")
    assert refused["field"] == "idempotency_key"


def test_a_key_belongs_to_the_one_who_sent_it(server: Server, agent: Worker) -> None:
    keys = [server.new_key("jobs.submit") for _ in range(2)]
    made = [
        issue(server, agent, "many.at-once", key=key, idempotency_key=f"of {agent.name}")["uuid"]
        for key in keys
    ]
    assert len(set(made)) == 2


def test_a_second_live_command_of_a_type_is_refused_and_the_live_one_named(
    server: Server, agent: Worker
) -> None:
    made = issue(server, agent, "whatsapp.connect")
    issue(server, agent, "whatsapp.status")
    issue(server, worker(server), "whatsapp.connect")
    for _ in ("pending", "in_progress"):
        refused = try_issue(server, agent, "whatsapp.connect").problem(409, "active-conflict")
        assert refused["uuid"] == made["uuid"]
        assert made["uuid"] in refused["detail"]
        agent.claim()
    agent.report(made["uuid"], status="failed", error="later", retryable=True).ok()
    try_issue(server, agent, "whatsapp.connect").problem(409, "active-conflict")
    server.call("POST", f"/commands/{made['uuid']}/cancel").ok()
    issue(server, agent, "whatsapp.connect")


def test_a_refused_request_leaves_its_key_free(server: Server, agent: Worker) -> None:
    live = issue(server, agent)
    key = f"of {agent.name}"
    try_issue(server, agent, idempotency_key=key).problem(409, "active-conflict")
    server.call("POST", f"/commands/{live['uuid']}/cancel").ok()
    assert try_issue(server, agent, idempotency_key=key).ok(201)["uuid"] != live["uuid"]


def test_a_type_may_be_declared_to_run_many_at_once(server: Server, agent: Worker) -> None:
    assert len({issue(server, agent, "many.at-once")["uuid"] for _ in range(3)}) == 3


@contextmanager
def two_servers(postgres: PostgresServer, tmp_path: Path) -> Iterator[list[Child]]:
    """Two processes over one database."""
    name = postgres.create()
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                process(
                    tmp_path / f"data{number}",
                    log=tmp_path / f"log{number}",
                    database=postgres.url(name),
                    sections=SECTIONS,
                )
            )
            for number in range(2)
        ]
    postgres.drop(name)


class Line:
    """A connection that is kept."""

    def __init__(self, child: Child) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", child.port, timeout=30)

    def post(self, path: str, body: Any = None) -> tuple[int, Any]:
        """The status and body of the answer."""
        headers = {"Authorization": f"Bearer {ROOT}"}
        self._connection.request("POST", path, json.dumps(body or {}), headers)
        reply = self._connection.getresponse()
        return reply.status, json.loads(reply.read())

    def close(self) -> None:
        self._connection.close()


Bodies = Callable[[int], list[dict[str, Any]]]


def race(children: list[Child], rounds: int, bodies: Bodies) -> Iterator[list[tuple[int, Any]]]:
    """In each round all lines of both servers post at once; their answers, then what won is cancelled."""
    lines = [Line(child) for child in children for _ in range(PER_SERVER)]
    start, end = threading.Barrier(len(lines) + 1), threading.Barrier(len(lines) + 1)
    asked: list[dict[str, Any]] = [{}] * len(lines)
    answers: list[tuple[int, Any]] = [(0, None)] * len(lines)

    def run(place: int) -> None:
        for _ in range(rounds):
            start.wait(timeout=60)
            answers[place] = lines[place].post("/commands", asked[place])
            end.wait(timeout=60)

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(lines))]
    for thread in threads:
        thread.start()
    broom = Line(children[0])
    try:
        for number in range(rounds):
            asked[:] = bodies(number)
            start.wait(timeout=60)
            end.wait(timeout=60)
            found = list(answers)
            made = {body["uuid"] for status, body in found if status == 201}
            for uuid in made:
                assert broom.post(f"/commands/{uuid}/cancel")[0] == 200
            yield found
    finally:
        start.abort()
        end.abort()
        for thread in threads:
            thread.join(timeout=30)
        for line in [*lines, broom]:
            line.close()


def issue_agent(child: Child) -> str:
    return child.call("POST", "/agents", json_body={"name": "raced"}).ok(201)["id"]


def drill(postgres: PostgresServer, tmp_path: Path, rounds: int) -> None:
    """Rounds of one key, of no key, and of one key under two bodies, in turn."""
    with two_servers(postgres, tmp_path) as children:
        agent = issue_agent(children[0])
        plain = {"type": "whatsapp.connect", "agent": agent}
        size = len(children) * PER_SERVER

        def bodies(number: int) -> list[dict[str, Any]]:
            keyed = {**plain, "idempotency_key": f"round {number}"}
            if number % 3 == 0:
                return [keyed] * size
            if number % 3 == 1:
                return [plain] * size
            return [{**keyed, "params": {"instance": str(place % 2)}} for place in range(size)]

        made: set[str] = set()
        for number, answers in enumerate(race(children, rounds, bodies)):
            statuses = Counter(status for status, _ in answers)
            assert statuses[201] == 1, (number, answers)
            uuids = {body["uuid"] for status, body in answers if status != 422}
            assert len(uuids) == 1, (number, answers)
            made |= uuids
            others = {0: {200: size - 1}, 1: {409: size - 1}, 2: {200: size // 2 - 1, 422: size // 2}}
            assert statuses == {201: 1, **others[number % 3]}, (number, answers)
            codes = {body["code"] for status, body in answers if status in (409, 422)}
            assert codes <= {"active-conflict", "idempotency-mismatch"}
        assert len(made) == rounds
        for status in ("pending", "in_progress"):
            assert children[1].call("GET", f"/commands?status={status}").ok()["items"] == []


def test_two_servers_that_race_make_one_command(postgres_server: PostgresServer, tmp_path: Path) -> None:
    drill(postgres_server, tmp_path, 300)


@pytest.mark.soak
def test_two_servers_race_thousands_of_times(
    postgres_server: PostgresServer, tmp_path: Path, soak_length: str
) -> None:
    drill(postgres_server, tmp_path, 1_500 if soak_length == "short" else 12_000)


@contextmanager
def racers(path: Path) -> Iterator[list["subprocess.Popen[str]"]]:
    """Two processes that have opened the same SQLite file."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with ExitStack() as stack:
        started = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "tests.systems.commands.racer", f"sqlite:///{path}"],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPO, env=environment,
                )
            )
            for _ in range(2)
        ]  # fmt: skip
        try:
            for racer in started:
                assert read_line(racer) == "ready\n"
            yield started
        finally:
            for racer in started:
                racer.kill()


def read_line(racer: "subprocess.Popen[str]") -> str:
    assert racer.stdout is not None
    return racer.stdout.readline()


def two_stores(path: Path, rounds: int) -> None:
    """Each command of each round has one winner, and the other is told of it."""
    won = [0, 0]
    with racers(path) as both:
        for number in range(rounds):
            for racer in both:
                assert racer.stdin is not None
                racer.stdin.write(f"{number}\n")
                racer.stdin.flush()
            for pair in zip(*(json.loads(read_line(racer)) for racer in both), strict=True):
                assert pair[0]["name"] == pair[1]["name"]
                created = [answer.get("created", False) for answer in pair]
                assert sorted(created) == [False, True], pair
                winner, other = (pair[0], pair[1]) if created[0] else (pair[1], pair[0])
                won[created.index(True)] += 1
                if "code" in other:
                    assert (other["code"], other["live"]) == ("active-conflict", winner["uuid"])
                else:
                    assert other["uuid"] == winner["uuid"]
                    assert other["name"].startswith("keyed")
    assert min(won) > sum(won) // 50, f"they did not race: {won}"


def test_two_processes_on_one_file_make_one_command(tmp_path: Path) -> None:
    two_stores(tmp_path / "raced.db", 300)


@pytest.mark.soak
def test_two_processes_on_one_file_race_thousands_of_times(tmp_path: Path, soak_length: str) -> None:
    two_stores(tmp_path / "raced.db", 3_000 if soak_length == "short" else 20_000)
