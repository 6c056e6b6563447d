"""What the kernel knows about a process and its children: CPU time and resident memory (Linux)."""

import os
from collections.abc import Iterable
from pathlib import Path

TICK = 1 / os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """Return the process and all its living descendants."""
    found = [pid]
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found.extend(int(child) for child in children.read_text().split())
            except OSError:
                continue
    return found


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return user plus system time of the processes, all threads included; resolution is one tick (10 ms)."""
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks * TICK


def resident_kib(pids: Iterable[int]) -> int:
    """Return the resident memory of the processes in KiB."""
    total = 0
    for pid in pids:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        for line in status.splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1])
    return total


def machine_seconds() -> float:
    """Return the time that all cores spent on processes or lost to the hypervisor, interrupts left out."""
    user, nice, system, _idle, _wait, _irq, _soft, stolen = (
        int(field) for field in Path("/proc/stat").read_text().split(maxsplit=9)[1:9]
    )
    return (user + nice + system + stolen) * TICK


def pin(core: int) -> None:
    """Keep the calling process on one core; does nothing where that core or the call is missing."""
    if hasattr(os, "sched_setaffinity") and core < (os.cpu_count() or 1):
        os.sched_setaffinity(0, {core})
