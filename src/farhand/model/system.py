"""What a system tells the host about itself: names and places, nothing that costs an import."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from farhand.model.errors import FarhandError
from farhand.model.policy import Policy

_REFERENCE = re.compile(r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$")
_NAME = re.compile(r"^[a-z][a-z0-9_-]{0,39}$")


class ManifestError(FarhandError):
    """A manifest that contradicts itself or another one."""

    code = "bad-config"


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """The manifest of a system.

    `types` maps the words a client may write as `type` to kinds. `submit` (decodes
    `POST /jobs`), `routes` and `handler` (what the agent does) are written `module:name` and
    loaded only where they are needed. `configure`, written the same way, takes the manifest and
    the system's own table of farhand.toml and returns the manifest with the kinds, types and
    policies found there; `declared` is what else it found, which the host only carries.

    A policy is named as its kind, or `kind.word` where a kind has several; `policy_of` then says
    which one a job is retried under. `results` names an object that checks what agents report
    and says what is shown of it, for kinds whose result is more than JSON to be passed on.
    `explain` says in words why a job waits, on read. `ticks` are done again and again by every
    server, each with its pause in milliseconds.
    """

    name: str
    kinds: tuple[str, ...]
    types: Mapping[str, str] = field(default_factory=dict[str, str])
    policies: Mapping[str, Policy] = field(default_factory=dict[str, Policy])
    submit: str | None = None
    routes: str | None = None
    handler: str | None = None
    configure: str | None = None
    policy_of: str | None = None
    results: str | None = None
    explain: str | None = None
    ticks: Mapping[str, int] = field(default_factory=dict[str, int])
    declared: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise ManifestError(f"{self.name!r} cannot name a system; use a-z, 0-9, - and _")
        named = {name for name in self.policies if not name.startswith(tuple(f"{k}." for k in self.kinds))}
        strangers = ({*self.types.values()} | named) - {*self.kinds}
        if strangers:
            raise ManifestError(f"system {self.name}: {min(strangers)!r} is not among its kinds")
        bare = [kind for kind in self.kinds if kind not in self.policies]
        if bare:
            raise ManifestError(f"system {self.name}: kind {bare[0]!r} has no policy")
        places = (self.submit, self.routes, self.handler, self.configure)
        for reference in (*places, self.policy_of, self.results, self.explain, *self.ticks):
            if reference is not None and not _REFERENCE.match(reference):
                raise ManifestError(f"system {self.name}: {reference!r} is not written module:name")
        object.__setattr__(self, "types", MappingProxyType(dict(self.types)))
        object.__setattr__(self, "policies", MappingProxyType(dict(self.policies)))
        object.__setattr__(self, "ticks", MappingProxyType(dict(self.ticks)))
        object.__setattr__(self, "declared", MappingProxyType(dict(self.declared)))
