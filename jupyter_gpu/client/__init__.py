"""How Python asks the broker: `Client` and `AsyncClient`, two thin senders of the same calls.

    with Client() as gpu:
        print(gpu.status().devices)

A client finds the broker when it is first needed, and starts one where none runs. When the broker it found is gone, it
looks once more; what may be done twice is then sent again. Every error is a GpuError.
"""

from .aio import AsyncClient
from .calls import LogPart
from .following import fold
from .reserving import Reservation, reserve, status, submit
from .sync import Client

__all__ = ["AsyncClient", "Client", "LogPart", "Reservation", "fold", "reserve", "status", "submit"]
