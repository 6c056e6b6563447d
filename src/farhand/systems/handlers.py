"""From an agent's settings to the handlers of the systems it has a part in."""

from collections.abc import Iterable

from farhand.agent.config import AgentConfig, ConfigError
from farhand.agent.handler import Apart, Handler, OwnersLane, Setup
from farhand.model.clock import Clock, SystemClock
from farhand.model.policy import suggest
from farhand.model.system import System
from farhand.systems import find_systems, load


def build_handlers(
    config: AgentConfig, *, clock: Clock | None = None, systems: Iterable[System] | None = None
) -> tuple[Handler, ...]:
    """One handler for each system that does something on an agent.

    An agent that carries out what others chose has no part in a system whose table is not in
    its settings: who lends a network connection does not mean to lend printers.

    Raises ConfigError for a table of agent.toml that belongs to no system, or whose settings
    do not fit.
    """
    present = [system for system in systems or find_systems() if system.handler is not None]
    names = [system.name for system in present]
    for table in config.sections:
        if table not in names:
            raise ConfigError(f"agent.toml has no table [{table}]{suggest(table, names)}")
    handlers: dict[str, Handler] = {}
    for system in present:
        section = config.sections.get(system.name, {})
        setup = Setup(clock=clock or SystemClock(), folder=config.folder, section=section, agent=config)
        handlers[system.name] = load(system.handler or "")(setup)
    if any(_for_others(handler) for handler in handlers.values()):
        return tuple(handler for name, handler in handlers.items() if name in config.sections)
    return tuple(handlers.values())


def _for_others(handler: Handler) -> bool:
    return isinstance(handler, Apart) or (isinstance(handler, OwnersLane) and handler.owners_lane > 0)
