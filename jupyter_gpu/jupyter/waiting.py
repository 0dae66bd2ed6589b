"""A start that waits in line for a GPU: for programs that run one notebook and whose environment says so."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from ..errors import InvalidAsk, LeaseLost, WaitTimeout
from ..holding import kernel_holder
from ..model import Ask, Kind, State, SubmitBody, WorkloadView
from ..out_of_reach import refuse_granted_for, refuse_in_vain_for
from ..units import parse_seconds
from .following import RENEW_PART
from .keeper import Keeper, Kept

DEVICES = "JUPYTER_GPU_KERNEL_DEVICES"
WAIT = "JUPYTER_GPU_KERNEL_WAIT"
FOR = "JUPYTER_GPU_KERNEL_FOR"
#: How long it waits where the environment gives no time.
USUAL_WAIT = "10m"


async def wait_for_devices(keeper: Keeper, kept: Kept, environ: Mapping[str, str] = os.environ) -> WorkloadView:
    """Reserve what the environment asks for, and wait so long; who waits in vain leaves the line, with the reason."""
    wait = environ.get(WAIT, USUAL_WAIT)
    try:
        devices = int(environ[DEVICES])
    except ValueError:
        raise InvalidAsk(f"{DEVICES}={environ[DEVICES]!r} is no number of GPUs.", hint=f"Set {DEVICES}=1.") from None
    wait_seconds = parse_seconds(wait, what=WAIT)
    length = parse_seconds(environ[FOR], what=FOR) if FOR in environ else None
    body = SubmitBody(
        kind=Kind.RESERVATION,
        ask=Ask(devices=devices, duration_seconds=length),
        name=kept.name,
        holder=kernel_holder(kept.kernel_id, None),
    )
    async with keeper.asking(kept) as client:
        await refuse_in_vain_for(client)
        kept.lease = await client.submit(body, f"kernel {kept.kernel_id}")
        deadline = time.monotonic() + wait_seconds
        while kept.lease.state is State.QUEUED and (left := deadline - time.monotonic()) > 0:
            # There is no process yet that the broker could see, so it has to hear that somebody waits.
            renewal = await client.renew(kept.lease.id, 1)
            step = min(left, (renewal.renew_by - time.time()) * RENEW_PART)
            kept.lease = await client.wait(kept.lease.id, "active", step, raise_on_timeout=False)
    if kept.lease.end is not None:
        raise LeaseLost(f"Reservation {kept.lease.id} ended before it was granted: {kept.lease.detail}.")
    if kept.held is None:
        raise WaitTimeout(
            f"No GPU within {wait} for this notebook: {kept.lease.reason}",
            hint=f"A longer {WAIT} waits on; without {DEVICES} the kernel starts and sees no GPU.",
        )
    async with keeper.asking(kept) as client:
        await refuse_granted_for(client, kept.lease)
    return kept.lease
