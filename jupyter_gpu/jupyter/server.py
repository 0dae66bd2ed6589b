"""The server extension: what JupyterLab's pages and the kernels of this server ask, asked of the broker.

Nothing here may break a Jupyter server. What of ours fails is one line of the log, and the rest goes on: notebooks
without our panel are better than no notebooks.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
from collections.abc import Iterator
from typing import Any

import msgspec
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_server.extension.application import ExtensionApp
from traitlets import Bool

from .. import __version__
from ..errors import BrokerUnavailable, GpuError
from ..notebooks import PROVISIONER, PROVISIONER_WORD, find_provisioner
from .documents import Hello
from .handlers import ROUTES
from .identity import Clients, Identity
from .upstream import Upstreams

PLAIN_PROVISIONER = "local-provisioner"
TIDY_SECONDS = 30.0


class GpuExtension(ExtensionApp):
    """Reserve GPUs for kernels, show them live, and send files to the queue."""

    name = "jupyter_gpu"

    start_broker = Bool(
        default_value=True, help="Start a broker of this user where none runs; off where an admin runs a shared one."
    ).tag(config=True)
    provisioner = Bool(
        default_value=True, help="Start all kernels with our provisioner, so that each sees the GPUs it reserved."
    ).tag(config=True)
    pass_provisioner_to_children = Bool(
        default_value=False,
        help=f"""Set {PROVISIONER_WORD} in this server, so that what it starts beside its kernels (jupyter-scheduler)
        uses our provisioner as well. An environment that lacks this package then lists no kernel at all, so terminals,
        where one may be activated, are told to use Jupyter's own.""",
    ).tag(config=True)

    clients: Clients
    upstreams: Upstreams
    #: What looks after the kernels; None where it could not be loaded.
    kernels: Any = None
    _tasks: tuple[asyncio.Task[None], ...] = ()
    _word_before: str | None = None
    _is_passed_on = False

    def _config_file_name_default(self) -> str:
        """One file says it all: the broker reads it as well."""
        return "jupyter_gpu_config"

    def initialize_settings(self) -> None:
        """Make what the handlers share; the event loop may not run yet."""
        self.clients = Clients(start=self.start_broker)
        self.upstreams = Upstreams(self.clients, self.log)
        with self._or_a_line("kernels cannot be looked after"):
            from .kernels import Kernels  # noqa: PLC0415 - may fail without taking the rest along

            self.kernels = Kernels(self.serverapp, self.clients.of)
            self.upstreams.follow(self.kernels)
        with self._or_a_line("kernels are started without GPU reservations"):
            self._offer_provisioner()

    def initialize_handlers(self) -> None:
        """Add our routes; jupyter_server puts its base URL before them."""
        self.handlers.extend(ROUTES)

    async def _start_jupyter_server_extension(self, serverapp: Any) -> None:
        """Begin what needs the event loop, and what needs the other extensions."""
        with self._or_a_line("terminals pass our provisioner on"):
            self._spare_terminals(serverapp.web_app.settings.get("terminal_manager"))
        self._tasks = (asyncio.create_task(self._tidy()), asyncio.create_task(self._look()))
        if self.kernels is not None:
            with self._or_a_line("the server does not say whether it computes"):
                from .server_word import say_for_ever  # noqa: PLC0415 - most servers hold nothing themselves

                word = say_for_ever(self.serverapp, self.kernels, lambda: self.clients.of(start=False))
                self._tasks = (*self._tasks, asyncio.create_task(word))

    async def stop_extension(self) -> None:
        """End what was begun. Kernels are shut down after this, and give their GPUs back themselves."""
        with self._or_a_line("not everything was closed"):
            for task in self._tasks:
                task.cancel()
            await self.upstreams.close()
            close = getattr(self.kernels, "close", None)
            if close is not None and inspect.isawaitable(closing := close()):
                await closing
            await self.clients.close()
        if self._is_passed_on:
            self._is_passed_on = False
            _set(PROVISIONER_WORD, self._word_before)

    async def hello(self, who: Identity) -> Hello:
        """Whom a page talks to. Starts nothing: the stream starts a broker, or says why not."""
        told = Hello(
            version=__version__, store_id=None, caller=who.name, simulated=False, start_broker=self.start_broker
        )
        try:
            status = await self.clients.of(who, start=False).status()
        except BrokerUnavailable:
            return told
        return msgspec.structs.replace(told, store_id=status.store_id, caller=status.caller, simulated=status.simulated)

    def _offer_provisioner(self) -> None:
        """Make our provisioner the default of all kernels, unless an admin or the environment chose another."""
        factory = KernelProvisionerFactory.instance(parent=self.serverapp)
        if not self.provisioner:
            return
        if factory.default_provisioner_name not in (PLAIN_PROVISIONER, PROVISIONER):
            self.log.warning(
                "jupyter_gpu: kernels are started by %r, as configured, so they see GPUs that nobody reserved.",
                factory.default_provisioner_name,
            )
            return
        entry = find_provisioner(PROVISIONER)
        if entry is None:
            raise LookupError(f"{PROVISIONER!r} is not registered; install jupyter_gpu again")
        entry.load()
        factory.default_provisioner_name = PROVISIONER
        if self.pass_provisioner_to_children:
            self._word_before, self._is_passed_on = os.environ.get(PROVISIONER_WORD), True
            os.environ[PROVISIONER_WORD] = PROVISIONER

    def _spare_terminals(self, terminals: Any) -> None:
        if self._is_passed_on and terminals is not None:
            words = {PROVISIONER_WORD: self._word_before or PLAIN_PROVISIONER}
            terminals.extra_env = {**(terminals.extra_env or {}), **words}

    async def _look(self) -> None:
        """Say in one line what is there; nothing is started before somebody asks for it."""
        with self._or_a_line("the broker was not looked for"):
            try:
                status = await self.clients.of(start=False).status()
            except GpuError as error:
                then = "The first page that asks starts one." if self.start_broker else error.hint
                self.log.info("jupyter_gpu: %s %s", error.message, then)
                return
            for warning in status.warnings:
                self.log.warning("jupyter_gpu: %s", warning)

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(TIDY_SECONDS)
            with self._or_a_line("connections were not closed"):
                await self.clients.tidy()

    @contextlib.contextmanager
    def _or_a_line(self, what: str) -> Iterator[None]:
        """Whatever fails in here is one line of the log; its traceback is for those who look closely."""
        try:
            yield
        except Exception as error:  # the Jupyter server must live
            self.log.warning("jupyter_gpu: %s: %s: %s", what, type(error).__name__, error)
            self.log.debug("jupyter_gpu: %s", what, exc_info=True)


def _set(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
