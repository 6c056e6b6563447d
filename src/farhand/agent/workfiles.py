"""Payloads on the agent's disk, for as long as their attempt lasts."""

import asyncio
import base64
import binascii
import shutil
from pathlib import Path
from typing import Final

from farhand.agent.backoff import Backoff
from farhand.agent.errors import NoAnswer, Refused, Stale
from farhand.agent.handler import Abandoned, PayloadError
from farhand.agent.journal import Key
from farhand.agent.link import Link
from farhand.agent.suspend import Waker
from farhand.protocol.agent import PayloadRef

PAYLOAD_MAX: Final = 1024 * 1024 * 1024


class WorkFiles:
    """One folder per attempt, emptied when the agent starts, so that a kill leaves nothing."""

    def __init__(self, folder: Path, link: Link, waker: Waker) -> None:
        self._folder = folder
        self._link = link
        self._waker = waker
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(mode=0o700, parents=True)

    async def payload(self, key: Key, lease_token: str, ref: PayloadRef) -> Path:
        """Brings a job's bytes to disk; a broken download begins anew.

        Raises PayloadError; Abandoned when the server says that the attempt is not ours.
        """
        place = self._place(key)
        try:
            await asyncio.to_thread(place.mkdir, mode=0o700, exist_ok=True)
            path = place / "payload"
            if ref.base64 is not None:
                await asyncio.to_thread(path.write_bytes, base64.b64decode(ref.base64, validate=True))
            elif ref.url is not None:
                await self._download(path, ref.url, lease_token, ref.size)
            else:
                raise PayloadError("the job came without its payload", retryable=True)
            size = (await asyncio.to_thread(path.stat)).st_size
        except (OSError, binascii.Error) as error:
            raise PayloadError(f"the payload cannot be stored: {error}", retryable=True) from error
        if size != ref.size:
            raise PayloadError(f"the payload has {size} bytes, not {ref.size}", retryable=True)
        return path

    async def scratch(self, key: Key) -> Path:
        """A place for a file that belongs to an attempt. Raises OSError."""
        place = self._place(key)
        await asyncio.to_thread(place.mkdir, mode=0o700, exist_ok=True)
        return place / "result"

    async def keep_body(self, key: Key, lease_token: str, path: Path) -> str:
        """Brings a result's body to the server; a broken transfer begins anew.

        Raises PayloadError; Abandoned when the server says that the attempt is not ours.
        """
        backoff = Backoff()
        while True:
            try:
                return (await self._link.upload(key[0], lease_token, path)).sha256
            except NoAnswer as error:
                wait_ms = backoff.next_ms(error.retry_after_ms)
            except Stale as error:
                raise Abandoned(error.message) from error
            except Refused as error:
                raise PayloadError(error.message, retryable=False) from error
            except OSError as error:
                raise PayloadError(f"the body cannot be read again: {error}", retryable=True) from error
            await self._waker.sleep(wait_ms)

    async def remove(self, key: Key) -> None:
        """Removes what belongs to an attempt."""
        await asyncio.to_thread(shutil.rmtree, self._place(key), ignore_errors=True)

    def _place(self, key: Key) -> Path:
        return self._folder / f"{key[0]}-{key[1]}"

    async def _download(self, path: Path, url: str, lease_token: str, size: int) -> None:
        if size > PAYLOAD_MAX:
            raise PayloadError(f"the payload of {size} bytes is too large for an agent", retryable=False)
        backoff = Backoff()
        while True:
            try:
                with await asyncio.to_thread(path.open, "wb") as file:
                    await self._link.download(url, lease_token, file.write, size)
                return
            except NoAnswer as error:
                wait_ms = backoff.next_ms(error.retry_after_ms)
            except Stale as error:
                raise Abandoned(error.message) from error
            except Refused as error:
                raise PayloadError(error.message, retryable=False) from error
            await self._waker.sleep(wait_ms)
