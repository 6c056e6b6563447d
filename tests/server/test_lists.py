"""Lists: filters, order, pages."""

import time
from typing import Any

from tests.server.serving import Server


def pages(server: Server, path: str, limit: int) -> list[Any]:
    """All items of a list, page by page."""
    items: list[Any] = []
    cursor = ""
    glue = "&" if "?" in path else "?"
    for _ in range(100):
        page = server.call("GET", f"{path}{glue}limit={limit}{cursor}").ok()
        assert len(page["items"]) <= limit
        items += page["items"]
        if page["next"] is None:
            return items
        assert len(page["items"]) == limit
        cursor = f"&cursor={page['next']}"
    raise AssertionError("the pages do not end")


def test_jobs_come_newest_first_and_page_by_page(server: Server) -> None:
    machine = server.machine()
    made = [server.submit(machine.printers[0])["id"] for _ in range(7)]
    path = f"/jobs?printer={machine.printers[0]}"
    for limit in (1, 3, 7, 200):
        assert [job["id"] for job in pages(server, path, limit)] == made[::-1]


def test_jobs_that_arrive_while_somebody_reads_move_no_page(server: Server) -> None:
    machine = server.machine()
    made = [server.submit(machine.printers[0])["id"] for _ in range(4)]
    path = f"/jobs?printer={machine.printers[0]}&limit=2"
    first = server.call("GET", path).ok()
    server.submit(machine.printers[0])
    second = server.call("GET", f"{path}&cursor={first['next']}").ok()
    assert [job["id"] for job in first["items"] + second["items"]] == made[::-1]


def test_jobs_are_found_by_what_is_known_of_them(server: Server) -> None:
    machine = server.machine(printers=[{"name": "a", "can_pdf": True}, {"name": "b", "can_pdf": True}])
    a, b = machine.printers
    source = f"shop-{machine.id}"
    plain = server.submit(a, source=source, tags=["red", "100%"])["id"]
    pdf = server.submit(b, b"%PDF-1.4", type="pdf_base64", source=source, tags=["red", "1000"])["id"]
    done = machine.take()["job_id"]
    machine.result(done, ok=True).ok()

    def found(query: str) -> set[str]:
        return {job["id"] for job in server.call("GET", f"/jobs?agent={machine.id}&{query}").ok()["items"]}

    assert found("") == {plain, pdf}
    assert found(f"source={source}") == {plain, pdf}
    assert found("source=shop") == set()
    assert found("kind=print.pdf") == {pdf}
    assert found("tag=red") == {plain, pdf}
    assert found("tag=100%25") == {plain}
    assert found("tag=re") == set()
    assert found("tag=_ed") == set()
    assert found(f"printer={b}&kind=print.pdf") == {pdf}
    assert found("state=done") == {done}
    assert found(f"state=done&printer={a if done == plain else b}") == {done}


def test_printers_of_the_same_name_are_all_shown_page_by_page(server: Server) -> None:
    machines = [server.machine(printers=[{"name": "Zebra"}, {"name": "Office"}]) for _ in range(4)]
    mine = {printer for machine in machines for printer in machine.printers}
    for limit in (1, 3):
        shown = [printer["id"] for printer in pages(server, "/printers", limit)]
        assert len(shown) == len(set(shown))
        assert mine <= set(shown)


def test_agents_of_the_same_name_are_all_shown_page_by_page(server: Server) -> None:
    name = f"desk-{time.monotonic_ns()}"
    made = set()
    for number in range(3):
        machine = server.machine(name, key=f"key-{number}-of-{name}")
        made.add(machine.id)
        server.call("POST", f"/agents/{machine.id}/revoke").ok()
    shown = [agent["id"] for agent in pages(server, "/agents", 1)]
    assert len(shown) == len(set(shown))
    assert made <= set(shown)
