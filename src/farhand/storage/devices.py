"""Devices as registrations describe them: new, changed, gone, back again."""

import secrets

from farhand.engine.enrolment import DeviceSpec
from farhand.engine.registry import Agent, Device
from farhand.model.ids import new_id
from farhand.storage.database import GuardFailed, Tx
from farhand.storage.statements import columns

NUMBER_TRIES = 64
DEVICE_COLUMNS = tuple(columns(Device))


def device_params(device: Device) -> dict[str, object]:
    """A device as statement parameters."""
    return {name: getattr(device, name) for name in DEVICE_COLUMNS}


async def upsert_devices(tx: Tx, agent: Agent, specs: tuple[DeviceSpec, ...], now: int) -> list[Device]:
    """Bring an agent's devices to what it says they are; the answers follow the order of `specs`."""
    rows = await tx.all("agent_devices", {"agent_id": agent.id})
    known = {(device.kind, device.name): device for device in (Device(*row) for row in rows)}
    answer: list[Device] = []
    named: set[tuple[str, str]] = set()
    for spec in specs:
        name = (spec.kind, spec.name)
        device = known.get(name)
        if device is None:
            device = known[name] = await insert_device(tx, agent, spec, now)
        elif _differs(device, spec):
            device.capabilities, device.state, device.reason = spec.capabilities, spec.state, spec.reason
            device.gone_at = None
            await tx.run("save_device", device_params(device))
        named.add(name)
        answer.append(device)
    seen = {spec.kind for spec in specs} or {"printer"}
    for name, device in known.items():
        if device.gone_at is None and device.kind in seen and name not in named:
            device.gone_at, device.state, device.reason = now, "gone", "the agent no longer has it"
            await tx.run("save_device", device_params(device))
    return answer


def _differs(device: Device, spec: DeviceSpec) -> bool:
    said = (spec.capabilities, spec.state, spec.reason)
    return device.gone_at is not None or (device.capabilities, device.state, device.reason) != said


async def insert_device(tx: Tx, agent: Agent, spec: DeviceSpec, now: int) -> Device:
    """A new device; its number says nothing of how many there are, so it is drawn until it is free."""
    for turn in range(NUMBER_TRIES):
        device = Device(
            id=new_id(now),
            org_id=agent.org_id,
            agent_id=agent.id,
            number=(now // 1000 + turn) % (1 << 20) << 10 | secrets.randbelow(1 << 10),
            name=spec.name,
            kind=spec.kind,
            capabilities=spec.capabilities,
            state=spec.state,
            reason=spec.reason,
            gone_at=None,
            created_at=now,
        )
        if await tx.each("insert_device", [device_params(device)]):
            return device
    raise GuardFailed("insert_device")
