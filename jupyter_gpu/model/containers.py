"""The admin's will about containers: which engines may run a job, and which images."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Literal

import msgspec


class ContainerRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An engine is always run as the job's own user, so what is allowed here gives nobody a right that they lack."""

    #: Which may be used, the preferred first; none: no job runs in a container.
    engines: tuple[Literal["podman", "docker", "apptainer"], ...] = ("podman", "docker", "apptainer")
    #: Images that may be run, as patterns: "registry.lab/*", "*:2.*".
    images: tuple[str, ...] = ("*",)

    def allows(self, image: str) -> bool:
        """Whether a job may run in this image."""
        return any(fnmatchcase(image, pattern) for pattern in self.images)
