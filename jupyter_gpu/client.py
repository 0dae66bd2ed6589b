"""How Python asks the broker: `Client` and `AsyncClient`, two thin senders of the same calls.

    with Client() as gpu:
        print(gpu.status().devices)

A client finds the broker when it is first needed, and starts one where none runs. When the broker it found is gone, it
looks once more; what may be done twice is then sent again. Every error is a GpuError.
"""

from .client_async import AsyncClient
from .client_calls import LogPart
from .client_reserve import Reservation, reserve, status, submit
from .client_sync import Client

__all__ = ["AsyncClient", "Client", "LogPart", "Reservation", "reserve", "status", "submit"]
