"""One running broker: its parts, in the order in which they begin and, backwards, end. One socket is served."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
import time
from typing import TYPE_CHECKING

from .. import __version__, paths
from ..core.policy_check import check
from ..core.unmet import unmet_rules
from ..errors import Conflict, GpuError, InvalidAsk
from ..model import API_VERSION, BrokerView, LoadPolicy
from .api.application import Api
from .api.routes import make_application
from .auth import Gate, account_name
from .engines.local import LocalEngine
from .engines.procs import raise_file_limit
from .listen import Doors
from .locks import Lock
from .loop import Loop
from .notify import Notifier
from .policing import PolicyTold, tell_of_waits
from .progress import ProgressReader
from .promises_told import tell_of_promises
from .reconcile import Reconciler
from .retention import tidy
from .sights import Sights
from .store.faults import said_plainly
from .store.store import Store
from .telemetry.sampler import Telemetry
from .telling import IsolationTold
from .visits import Book
from .watch import Watch

if TYPE_CHECKING:
    from .app import GpuBroker
    from .hub.service import Service

log = logging.getLogger(__name__)

HOLDERS_SECONDS = 0.25
IDLE_LOOK_SECONDS = 1.0
SWEEP_SECONDS = 3600.0
#: How long the next service waits for the one before, which ends when it sees that its hub is gone.
BEFORE_US_SECONDS = 15.0
#: Behind one proxy, so many may be asked about at the hub at once.
HUB_STRANGERS = 512


class Broker:
    """The parts of one running broker, in the order in which they begin and, backwards, end."""

    def __init__(self, app: GpuBroker) -> None:
        self._app = app
        self._stopping = asyncio.Event()
        self._looked_at = 0.0
        self._swept_at = 0.0
        self._loop: Loop | None = None
        self._reloading: asyncio.Future[None] | None = None
        self._service: Service | None = None
        self._notifier: Notifier | None = None
        self._policy_told: PolicyTold | None = None
        # A hub leads each of its services into a session of its own. Without the hub nobody would end this one, and
        # the next hub's could have neither its port nor its devices.
        self._parent = os.getppid() if app.hub and os.getsid(0) == os.getpid() else None

    def stop(self) -> None:
        """Stop soon; what runs goes on, and the next broker takes it up."""
        self._stopping.set()

    def reload(self) -> None:
        """Read the config again, once there is somebody to take it."""
        if self._loop is not None:
            self._reloading = asyncio.ensure_future(self._reload(self._loop))

    async def serve(self) -> None:
        """Begin, serve until stopped, and end."""
        app = self._app
        policy = app.read_policy()
        raise_file_limit()
        book, service = self._join()
        gate = service.gate if service else Gate(system=app.system, tokens=app.tokens, hosts=app.hosts, book=book)
        with said_plainly(app.state_folder):
            self._make_folders()
            locks = await self._take_locks()
        async with contextlib.AsyncExitStack() as stack:
            for lock in locks:
                stack.callback(lock.release)
            engine = LocalEngine(app.state_folder / "attempts", isolation=app.isolation)
            store = Store.open(app.state_folder, machine_id=paths.machine_id(), now=time.time())
            loop = Loop(
                store=store,
                engines={"local": engine},
                policy=policy,
                identity=self._identity(),
                idle_seconds=None if app.system or app.hub or not app.idle_seconds else app.idle_seconds,
                ids_after=engine.highest_workload(),
                alert_command=app.alert_command,
            )
            if service is not None:
                service.join(loop)
            # The launcher begins before NVML is opened, and knows nothing of store or secrets.
            stack.push_async_callback(engine.close)
            with said_plainly(app.state_folder):
                await engine.start(lambda _: loop.wake())
            await loop.start()
            stack.push_async_callback(loop.close)
            await self._begin_to_tell(loop, engine, stack)
            watch = Watch(loop, Telemetry(app.source()), attempts=str(app.state_folder / "attempts"))
            reconciler = Reconciler(loop, {"local": engine}, watch)
            await watch.start()
            stack.push_async_callback(watch.close)
            stack.push_async_callback(reconciler.close)
            self._wire(loop, watch, reconciler, engine)
            api = make_application(loop, gate, **(service.words if service else {}))
            doors = self._doors(api, book)
            doors.open()
            stack.push_async_callback(api.close)
            stack.callback(doors.close)
            if service is not None:
                stack.push_async_callback(service.close)
                service.begin(loop)
            app.say_ready()
            log.info("serving %s devices at %s", len(loop.world.devices), app.socket_path)
            await self._until_stopped(loop, api, doors)

    async def _begin_to_tell(self, loop: Loop, engine: LocalEngine, stack: contextlib.AsyncExitStack) -> None:
        """Tell people of their jobs, first what the broker before this one did not, and look how far those are."""
        progress = ProgressReader(loop)
        progress.begin()
        stack.push_async_callback(progress.close)
        self._notifier = Notifier(
            loop, command=self._app.notify_command, for_errands=lambda: engine.for_errands(_nodes(loop))
        )
        await self._notifier.start()
        stack.push_async_callback(self._notifier.close)

    def _join(self) -> tuple[Book, Service | None]:
        """What there is more of under a hub, whose proxy brings everybody to one door."""
        if not self._app.hub:
            return Book(), None
        try:
            from .hub.service import Service  # noqa: PLC0415 - jupyterhub is there only where a hub is
        except ModuleNotFoundError as error:
            raise InvalidAsk(
                f"GpuBroker.hub is set, but {error.name} is not installed for {sys.executable}.",
                hint="Install it there: pip install 'jupyter-gpu[hub]'.",
            ) from None
        book = Book(most_strangers=HUB_STRANGERS)
        self._service = Service(self._app, book)
        return book, self._service

    async def _take_locks(self) -> list[Lock]:
        """Those of this broker; where a hub was started again, the service of the one before may be about to end."""
        deadline = time.monotonic() + (BEFORE_US_SECONDS if self._app.hub else 0.0)
        while True:
            try:
                return self._app.take_locks()
            except Conflict:
                if time.monotonic() >= deadline or self._stopping.is_set():
                    raise
            await asyncio.sleep(IDLE_LOOK_SECONDS / 2)

    def _make_folders(self) -> None:
        app = self._app
        app.state_folder.mkdir(parents=True, exist_ok=True)
        # On a shared machine jobs of others pass through, to their own attempt's files.
        app.state_folder.chmod(0o711 if app.system else 0o700)
        self._make_run_folder()

    def _make_run_folder(self) -> None:
        app = self._app
        if app.system:
            app.run_folder.mkdir(parents=True, exist_ok=True)
            app.run_folder.chmod(0o755)  # everybody finds the door, whatever umask and JupyterApp say
        else:
            paths.make_private(app.socket_path.parent)

    def _identity(self) -> BrokerView:
        app = self._app
        return BrokerView(
            version=__version__,
            api_version=API_VERSION,
            pid=os.getpid(),
            user=account_name(os.geteuid()),
            node=socket.gethostname(),
            store_id="",
            state_dir=str(app.state_folder),
            policy_digest="",
            devices=0,
            simulated=bool(app.simulated_devices),
            started_at=time.time(),
            stops_at=None,
            warnings=(),
        )

    def _wire(self, loop: Loop, watch: Watch, reconciler: Reconciler, engine: LocalEngine) -> None:
        # "auto" takes what there is, and the badge says what that is.
        is_asked, told = self._app.isolation not in ("auto", "off"), IsolationTold(loop.alerts)

        async def act() -> None:
            if not watch.has_looked:  # what is gone must get no work
                return
            now = time.monotonic()
            if now - self._looked_at >= HOLDERS_SECONDS:
                self._looked_at = now
                watch.look_around()
                told.look(loop.world, engine.isolation if is_asked else None, loop.now())
            await reconciler.step()

        loop.sights = Sights(
            cards=lambda: watch.cards,
            driver=lambda: watch.driver,
            isolation=lambda: engine.isolation,
            warnings=lambda: watch.warnings,
            for_errands=lambda: engine.for_errands(_nodes(loop), must_mount=True),
            knows_devices=watch.knows_devices,
        )
        loop.act = act
        loop.on_stop = self.stop
        self._loop = loop
        loop.wake()

    async def _reload(self, loop: Loop) -> None:
        """Read the config again. What cannot be meant is told and changes nothing; the queue goes on either way."""
        try:
            policy = self._app.read_policy_anew()
            view = check(loop.world, policy, loop.now())
            told = self._policy_told = self._policy_told or PolicyTold(loop.alerts)
            told.will_load(view)
            await loop.handle(LoadPolicy(policy=policy))
        except GpuError as error:
            log.error("the policy was not reloaded: %s", error.message)  # noqa: TRY400 - a sentence, no traceback
        else:
            log.info("the policy was reloaded")
            told.has_loaded(view, loop.world, loop.now())
            for sentence in unmet_rules(loop.world):
                log.warning("%s", sentence)

    def _doors(self, api: Api, book: Book) -> Doors:
        app = self._app
        return Doors(
            api,
            socket_path=app.socket_path,
            for_everybody=app.system,
            tcp=app.listen,
            service=None if self._service is None else self._service.address,
            tls=None if self._service is None else self._service.tls,
            make_folder=self._make_run_folder,
            book=book,
        )

    async def _keep_house(self, api: Api, doors: Doors) -> None:
        """Now and then: that we can be found, that the disk has room, and that nothing stays that nobody needs."""
        api.room.tell(api.loop.alerts)
        tell_of_waits(api.loop.alerts, api.loop.world, api.loop.now())
        if self._policy_told is not None:
            self._policy_told.look(api.loop.world)
        tell_of_promises(api.loop.alerts, api.loop.world, api.loop.now())
        if self._notifier is not None:
            await self._notifier.keep_up()
        try:
            if doors.look():
                log.warning("the socket %s was gone; it is there again", self._app.socket_path)
        except (GpuError, OSError) as error:
            log.warning("nobody can find this broker: %s", error)
        if time.monotonic() >= self._swept_at + SWEEP_SECONDS:
            self._swept_at = time.monotonic()
            await tidy(api.loop, api.scripts, self._app.state_folder / "attempts")

    async def _until_stopped(self, loop: Loop, api: Api, doors: Doors) -> None:
        while not self._stopping.is_set():
            await self._keep_house(api, doors)
            if self._parent is not None and os.getppid() != self._parent:
                log.warning("the hub that started this service is gone: stopping; what runs goes on")
                return
            stops_at = loop.stops_at()
            if stops_at is not None and loop.now() >= stops_at:
                log.info("idle for %s s: stopping", self._app.idle_seconds)
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), IDLE_LOOK_SECONDS)


def _nodes(loop: Loop) -> list[str]:
    """The nodes of all devices, those that only the broker before this one has seen so far among them."""
    return [node for device in loop.world.devices.values() for node in device.nodes]
