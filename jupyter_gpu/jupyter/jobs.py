"""From a file of the file browser to a job."""

from __future__ import annotations

from typing import Any

from ..client import AsyncClient
from ..model import WorkloadView
from .documents import FileJob


async def submit_file(job: FileJob, contents: Any, client: AsyncClient, *, key: str | None = None) -> WorkloadView:
    """Send a file to the queue."""
    raise NotImplementedError
