"""A stand-in for pynvml in our own process: cards as objects, errors by the call's name, calls counted."""

from functools import partial
from types import SimpleNamespace

from jupyter_gpu.broker.telemetry.nvml import NvmlSource

MIB, GIB = 1 << 20, 1 << 30
NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, NOT_LOADED, NO_LIBRARY, NO_FUNCTION = 3, 4, 6, 9, 12, 13
TIMEOUT, LOST, MISMATCH, UNINITIALIZED, UNKNOWN = 10, 15, 18, 1, 999
ALL_ONES = 2**64 - 1


class FakeNvmlError(Exception):
    """pynvml.NVMLError: the number is what counts."""

    def __init__(self, value):
        super().__init__(f"error {value}")
        self.value = value


class FakeMismatchError(Exception):
    """pynvml.NVMLLibraryMismatchError, which is no NVMLError."""


def process(pid, used, instance=None, part=2**32 - 1):
    """Make an entry of a list of processes; the oldest ones do not say on which instance it is."""
    more = {} if instance is None else {"gpuInstanceId": instance, "computeInstanceId": part}
    return SimpleNamespace(pid=pid, usedGpuMemory=used, **more)


def reported(card, xid, instance=2**32 - 1, part=2**32 - 1, kind=8):
    """Make what the driver reports."""
    return SimpleNamespace(device=card, eventType=kind, eventData=xid, gpuInstanceId=instance, computeInstanceId=part)


class Card:
    """One card. An answer that is an exception is raised, one that is a number in `errors` is an NVML error."""

    def __init__(self, index, **answers):
        self.uuid = f"GPU-{index:08d}-0000-0000-0000-000000000000"
        self.name = "NVIDIA L4"
        self.v1 = SimpleNamespace(total=24 * GIB, used=700 * MIB)
        self.v2 = SimpleNamespace(total=23034 * MIB, used=8 * MIB, reserved=692 * MIB)
        self.utilisation, self.celsius, self.milliwatts = 40, 55, 71_500
        self.compute, self.graphics, self.mps = [], [], []
        self.mig, self.slots = (0, 0), {}
        self.links = ()
        self.minor, self.mode, self.addressing = index, 0, 0
        self.instance, self.part = 2**32 - 1, 2**32 - 1
        self.reasons, self.slowdown, self.ecc, self.display = 0, 90, 0, 0
        self.rows, self.pages, self.recovery = (0, 0, 0, 0), 0, 0
        self.errors = {}
        vars(self).update(answers)


def _handle_by_uuid(nvml, uuid):
    everybody = [*nvml.cards, *(it for card in nvml.cards for it in card.slots.values())]
    return _found(next((card for card in everybody if card.uuid == uuid), None))


def _found(card):
    if card is None:
        raise FakeNvmlError(NOT_FOUND)
    return card


def _register(nvml, card, _kinds, _set):
    nvml.registered.append(card.uuid)


def _wait(nvml, _set, milliseconds):
    assert milliseconds == 0, "the sampler thread waits for nothing"
    nvml._fail(nvml.wait_error)
    if not nvml.events:
        raise FakeNvmlError(TIMEOUT)
    return nvml.events.pop(0)


CALLS = {
    "nvmlInit": lambda _: None,
    "nvmlShutdown": lambda _: None,
    "nvmlDeviceGetCount": lambda nvml: len(nvml.cards),
    "nvmlDeviceGetHandleByIndex": lambda nvml, index: nvml.cards[index],
    "nvmlDeviceGetHandleByUUID": _handle_by_uuid,
    "nvmlDeviceGetUUID": lambda nvml, card: nvml.text(card.uuid),
    "nvmlDeviceGetName": lambda nvml, card: nvml.text(card.name),
    "nvmlDeviceGetMemoryInfo": lambda _, card, version=None: card.v2 if version else card.v1,
    "nvmlDeviceGetUtilizationRates": lambda _, card: SimpleNamespace(gpu=card.utilisation),
    "nvmlDeviceGetTemperature": lambda _, card, _sensor: card.celsius,
    "nvmlDeviceGetPowerUsage": lambda _, card: card.milliwatts,
    "nvmlDeviceGetComputeRunningProcesses": lambda _, card: card.compute,
    "nvmlDeviceGetComputeRunningProcesses_v2": lambda _, card: card.compute,
    "nvmlDeviceGetGraphicsRunningProcesses": lambda _, card: card.graphics,
    "nvmlDeviceGetMPSComputeRunningProcesses": lambda _, card: card.mps,
    "nvmlDeviceGetMigMode": lambda _, card: list(card.mig),
    "nvmlDeviceGetMaxMigDeviceCount": lambda _, _card: 7,
    "nvmlDeviceGetMigDeviceHandleByIndex": lambda _, card, slot: _found(card.slots.get(slot)),
    "nvmlSystemGetDriverVersion": lambda nvml: nvml.text("570.86.15"),
    "nvmlSystemGetNVMLVersion": lambda nvml: nvml.text("12.570.86.15"),
    "nvmlSystemGetCudaDriverVersion_v2": lambda _: 12080,
    "nvmlDeviceGetMinorNumber": lambda _, card: card.minor,
    "nvmlDeviceGetComputeMode": lambda _, card: card.mode,
    "nvmlDeviceGetAddressingMode": lambda _, card: card.addressing,
    "nvmlDeviceGetGpuInstanceId": lambda _, card: card.instance,
    "nvmlDeviceGetComputeInstanceId": lambda _, card: card.part,
    "nvmlDeviceGetAttributes_v2": lambda _, _card: SimpleNamespace(gpuInstanceSliceCount=3),
    "nvmlDeviceGetCurrentClocksEventReasons": lambda _, card: card.reasons,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _, card: card.reasons,
    "nvmlDeviceGetTemperatureThreshold": lambda _, card, which: {1: card.slowdown}[which],
    "nvmlDeviceGetTotalEccErrors": lambda _, card, kind, since: {(1, 0): card.ecc}[kind, since],
    "nvmlDeviceGetRemappedRows": lambda _, card: card.rows,
    "nvmlDeviceGetRetiredPagesPendingStatus": lambda _, card: card.pages,
    "nvmlDeviceGetFieldValues": lambda _, card, ids: [
        SimpleNamespace(nvmlReturn={230: 0}[it], value=SimpleNamespace(uiVal=card.recovery)) for it in ids
    ],
    "nvmlDeviceGetDisplayActive": lambda _, card: card.display,
    "nvmlEventSetCreate": lambda _: "set",
    "nvmlEventSetFree": lambda _, _set: None,
    "nvmlDeviceRegisterEvents": _register,
    "nvmlEventSetWait_v2": _wait,
    "nvmlDeviceGetP2PStatus": lambda _, one, other, _what: 0 if other in one.links or one in other.links else 5,
}


class FakeNvml:
    """As much of pynvml as the source uses. Calls are counted, and fail, by their names without "nvmlDeviceGet"."""

    NVMLError = FakeNvmlError
    NVMLLibraryMismatchError = FakeMismatchError
    NVML_P2P_CAPS_INDEX_NVLINK = 2
    NVML_P2P_STATUS_OK = 0
    nvmlMemory_v2 = 0x02000028  # noqa: N815 - its name in pynvml

    def __init__(self, *cards):
        self.cards = list(cards)
        self.init_error = None
        self.gone = None
        self.without = set()
        self.registered, self.events, self.wait_error = [], [], None
        self.calls = []
        self.text = str

    def __getattr__(self, name):
        if name not in CALLS or name in self.without:
            raise AttributeError(name)
        return partial(self._call, name)

    def _call(self, name, *args):
        short = name.removeprefix("nvml").removeprefix("DeviceGet")
        if short == "MemoryInfo" and len(args) > 1:
            short = "MemoryInfo_v2"
        self.calls.append(short)
        self._fail(self.init_error if short == "Init" else self.gone)
        self._fail_as(short, args[0] if args else None)
        answer = CALLS[name](self, *args)
        self._fail_as(short, answer)  # a card that is looked up
        return answer

    def _fail_as(self, short, card):
        if isinstance(card, Card):
            self._fail(card.errors.get(short) or card.errors.get("*"))

    def _fail(self, error):
        if error:
            raise error if isinstance(error, Exception) else FakeNvmlError(error)


class Clock:
    """A monotonic clock that only the test moves."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        """Tell the time."""
        return self.now


def opened(*cards, without=(), **options):
    """Make a source over these cards that has listed them; some calls the bindings do not have."""
    nvml, clock = FakeNvml(*cards), Clock()
    nvml.without = set(without)
    source = NvmlSource(nvml, node="node", retry_seconds=10, clock=clock, **options)
    source.devices()
    nvml.calls.clear()
    return source, nvml, clock


def read(source, *cards):
    """Read these cards, or the only one."""
    readings = source.read([card.uuid for card in cards])
    return readings if len(cards) > 1 else readings[0]
