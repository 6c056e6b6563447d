"""The IPP device behind a CUPS queue, asked for its own word.

cupsd reports some jobs as completed that the device aborted or refused (seen with 2.4.2: its
backend stops looking before it has noted the end), calls others cancelled without the device's
reason, and tells of a device that is away in a sentence only. The device knows the job by the
same name.
"""

from farhand.systems.printing.drivers.ipp_attributes import device_scheme
from farhand.systems.printing.drivers.ipp_client import IppClient, IppError, Timeouts, endpoint
from farhand.systems.printing.drivers.ipp_session import IppSession, Job
from farhand.systems.printing.drivers.ipp_values import Group


class Device:
    """Read-only questions; None where the device cannot be asked or does not know."""

    def __init__(self, session: IppSession):
        self._session = session

    async def job(self, name: str) -> Job | None:
        """The device's job of this name."""
        try:
            return await self._session.find(name)
        except IppError:
            return None

    async def printer(self) -> Group | None:
        """The device's attributes."""
        try:
            return await self._session.printer()
        except IppError:
            return None


def device_of(queue: Group, user: str, timeouts: Timeouts) -> Device | None:
    """The device of a queue; None when it is not reached by an IPP address."""
    uri = queue.first("device-uri")
    if device_scheme(queue) not in ("ipp", "ipps") or not isinstance(uri, str):
        return None
    try:
        # What follows the question mark is for CUPS's backend.
        where = endpoint(uri.partition("?")[0])
    except ValueError:
        return None
    return Device(IppSession(IppClient(where, timeouts=timeouts), user))
