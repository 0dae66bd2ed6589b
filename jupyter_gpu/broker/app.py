"""The broker's process: traits become the frozen Policy and the places where things stand; signals are heard.

Started by the first face that needs it (embedded, for one user), by systemd (shared) or by hand. It says `ready` on a
file descriptor once it answers, stays while work exists, and stops by itself when idle for a stated time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jupyter_core.application import JupyterApp
from traitlets import Bool, Dict, Enum, Int, List, Unicode, Union
from traitlets.config import Config

from .. import __version__, paths
from ..errors import GpuError, InvalidAsk
from ..model import Policy
from ..policies import read_policy
from ..policy_lines import where_in
from ..units import parse_bytes
from .locks import Lock
from .settings import refuse_unknown, settings_of
from .telemetry.nvml import NvmlSource
from .telemetry.sampler import Source
from .telemetry.simulated import SimulatedSource
from .wiring import Broker


class GpuBroker(JupyterApp):
    """Own this machine's GPUs and run the queue."""

    name = "jupyter-gpu-broker"
    description = __doc__ or ""
    version = __version__
    config_file_name = Unicode("jupyter_gpu_config")

    policy = Dict(
        help="""The rules: queues, quotas, teams, holds, profiles, operators and limits.

        Lengths and sizes as people write them. A policy that cannot be meant is refused with the setting that is wrong.

            c.GpuBroker.policy = {
                "teams": {"vision": ["ada", "grace"]},
                "quotas": [{"team": "*", "devices": 4}, {"user": "*", "gpu_hours": 100}],
                "reservation_seconds": "2h",
            }
        """
    ).tag(config=True)
    simulated_devices = Int(0, help="Serve so many simulated devices instead of the real ones. For demos.").tag(
        config=True
    )
    simulated_memory = Unicode("16GiB", help="The memory of each simulated device.").tag(config=True)
    system = Bool(default_value=False, help="The machine's shared broker, as root: jobs run as who submits them.").tag(
        config=True
    )
    runtime_dir = Unicode("", help="The folder of the socket; empty is the usual place.").tag(config=True)
    state_dir = Unicode("", help="The folder of the store and the attempts; empty is the usual place.").tag(config=True)
    lock_file = Unicode("", help="The machine-wide lock; empty is the usual place.").tag(config=True)
    listen = Unicode("", help="Also serve TCP at host:port, with tokens only, e.g. 127.0.0.1:8790.").tag(config=True)
    hosts = List(
        Unicode(), help="Names by which TCP callers may call this broker, besides 127.0.0.1: those of a proxy."
    ).tag(config=True)
    tokens = Dict(
        help="""Static tokens of services: the sha256 of each, and what it may do.

            c.GpuBroker.tokens = {"<sha256 hex>": {"name": "grafana", "scopes": ["read", "metrics"]}}
        """
    ).tag(config=True)
    hub = Bool(
        default_value=False,
        help="Serve a JupyterHub as its service: who calls and what they may do is the hub's word. docs/hub.md.",
    ).tag(config=True)
    hub_cache_seconds = Int(
        15, help="So long the hub's word on a token is kept: so soon a lost role, group or token counts."
    ).tag(config=True)
    account_of_user = Union(
        [Dict(), Unicode()],
        default_value="",
        help="""Whose account the work of a hub's user runs as: "same" as their name, the "service"'s own, or by name.

            c.GpuBroker.account_of_user = {"ana.b@uni.example": "ana", "*": "same"}

        Without it "same" where the broker is root, else "service". Accounts below 1000, root's above all, are
        nobody's unless this names them; who has none may reserve, and starts no jobs.
        """,
    ).tag(config=True)
    hub_socket_scopes = List(
        Unicode(),
        help="""What an account of this machine may do over the socket of a hub's service: nothing, since the hub's
        roles would be no bounds to it. Root and the operators of the policy may do everything.

            c.GpuBroker.hub_socket_scopes = ["read", "reserve", "submit"]
        """,
    ).tag(config=True)
    isolation = Enum(
        ("auto", "cgroup", "landlock", "bubblewrap", "off"),
        "auto",
        help="What keeps a job from the GPUs that are not its own: what is there, one of these by name, or nothing.",
    ).tag(config=True)
    devices_folder = Unicode(
        "/dev", help="Where the GPUs' device nodes stand, for containers that mount them elsewhere."
    ).tag(config=True)
    alert_command = List(
        Unicode(),
        help="""A command that is told of each alert: one AlertView as JSON on its standard input, 10 seconds at most.

            c.GpuBroker.alert_command = ["/usr/local/bin/tell-the-admins", "--urgent"]
        """,
    ).tag(config=True)
    notify_command = List(
        Unicode(),
        help="""A command that is told of everybody's jobs, beside whom they name themselves: one News as JSON on its
        standard input for each that started, must yield, failed or ended, 10 seconds at most.

            c.GpuBroker.notify_command = ["/usr/local/bin/mail-the-owner"]
        """,
    ).tag(config=True)
    idle_seconds = Int(1800, help="An embedded broker stops after so long without work or questions; 0 never.").tag(
        config=True
    )
    ready_fd = Int(-1, help="Write one line here: `ready`, or why not.").tag(config=True)

    aliases = {  # noqa: RUF012 - traitlets reads it off the class, and types it as an instance's
        "simulated": "GpuBroker.simulated_devices",
        "listen": "GpuBroker.listen",
        "ready-fd": "GpuBroker.ready_fd",
        "idle-seconds": "GpuBroker.idle_seconds",
        "config": "JupyterApp.config_file",
        "log-level": "Application.log_level",
    }
    flags = {  # noqa: RUF012 - likewise
        "system": ({"GpuBroker": {"system": True}}, "The machine's shared broker, as root."),
        "hub": ({"GpuBroker": {"hub": True}}, "The service of a JupyterHub."),
    }

    #: A config that is half read is not what the admin meant.
    raise_config_file_errors = True

    def initialize(self, argv: Any = None) -> None:
        """Read the command line and the config files; what cannot be meant ends it here, with a sentence."""
        with self._or_say_why():
            super().initialize(argv)

    def start(self) -> None:
        """Serve until told to stop."""
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        for name in ("tornado.access", "alembic"):  # each request, and what jupyterhub brings along
            logging.getLogger(name).setLevel(logging.WARNING)
        with self._or_say_why():
            asyncio.run(self._serve())

    async def _serve(self) -> None:
        broker, running = Broker(self), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            running.add_signal_handler(number, broker.stop)
        running.add_signal_handler(signal.SIGHUP, broker.reload)
        await broker.serve()

    @contextlib.contextmanager
    def _or_say_why(self) -> Iterator[None]:
        try:
            yield
        except GpuError as error:
            self._say("\t".join(" ".join(it.split()) for it in (type(error).code, error.message, error.hint or "")))
            sys.exit(f"{error.message}\n{error.hint or ''}")

    def load_config_file(  # type: ignore[override]
        self,
        suppress_errors: bool = False,  # noqa: FBT001, FBT002 - as in JupyterApp
    ) -> None:
        """Read the config files. Raises InvalidAsk where they cannot be read or hold what no setting can take."""
        hint = "Mend it: a jupyter_gpu_config.py in one of the config folders that `jupyter --paths` lists."
        if self.config_file and not Path(self.config_file).exists():
            raise InvalidAsk(f"there is no config file {self.config_file}", hint="Is the name right?")
        told = settings_of(os.environ, self.trait_names(config=True))
        try:
            super().load_config_file(suppress_errors=suppress_errors)
            # What a hub says counts more than files that may be meant for a broker without one.
            self.update_config(Config({type(self).__name__: told}))
        except SystemExit as exit_:  # so traitlets ends where a value does not suit its setting
            raise InvalidAsk(f"the config cannot be meant: {exit_.__context__}", hint=hint) from None
        except Exception as error:  # any Python may stand in a config file
            raise InvalidAsk(f"the config cannot be read: {type(error).__name__}: {error}", hint=hint) from error
        refuse_unknown(self.config.get(type(self).__name__, {}), self.trait_names(config=True), hint=hint)

    def say_ready(self) -> None:
        """Tell whoever started this that it answers now."""
        self._say("ready")

    def _say(self, line: str) -> None:
        if self.ready_fd >= 0:
            with contextlib.suppress(OSError):  # whoever wanted to know is gone
                os.write(self.ready_fd, f"{line}\n".encode())
                os.close(self.ready_fd)
            self.ready_fd = -1

    # -- places

    @property
    def run_folder(self) -> Path:
        """Where the socket stands."""
        if self.runtime_dir:
            return Path(self.runtime_dir).absolute()
        return paths.SYSTEM_RUNTIME_DIR if self.system and not _is_aside() else paths.runtime_dir()

    @property
    def socket_path(self) -> Path:
        """The socket, at a path that the kernel takes."""
        return paths.fitting(self.run_folder / paths.SOCKET_NAME)

    @property
    def state_folder(self) -> Path:
        """Where the store and the attempts stand."""
        if self.state_dir:
            return Path(self.state_dir).absolute()
        return paths.SYSTEM_STATE_DIR if self.system and not _is_aside() else paths.state_dir()

    def read_policy(self) -> Policy:
        """The policy of the traits as they stand."""
        return read_policy(self.policy, where_in(self.loaded_config_files))

    def read_policy_anew(self) -> Policy:
        """The policy of the files as they stand now; what has left them is in force no more."""
        fresh = type(self)(config_file=self.config_file)
        fresh.cli_config = self.cli_config
        fresh.load_config_file()
        return fresh.read_policy()

    def source(self) -> Source:
        """Where readings come from."""
        if self.simulated_devices:
            return SimulatedSource(
                self.simulated_devices,
                memory_bytes=parse_bytes(self.simulated_memory),
                place=str(self.state_folder),
                node=socket.gethostname(),
            )
        return NvmlSource(node=socket.gethostname(), dev=Path(self.devices_folder))

    def take_locks(self) -> list[Lock]:
        """One broker for this store, and one for the devices of this machine."""
        hint = "Use that one: the faces find it by themselves. An admin installs a shared one with docs/admin.md."
        wanted: list[tuple[Path, dict[str, Any]]] = [
            (self.state_folder / "broker.lock", {"what": f"the store in {self.state_folder}", "private": True}),
            # Two brokers with stores of their own would else take the socket from each other.
            (self.socket_path.with_suffix(".lock"), {"what": f"the socket {self.socket_path}", "private": True}),
        ]
        if not self.simulated_devices:
            path = Path(self.lock_file) if self.lock_file else paths.machine_lock()
            wanted.append((path, {"what": "this machine's GPUs: the broker", "is_first": self.system}))
        with contextlib.ExitStack() as taken:
            locks = []
            for path, words in wanted:
                locks.append(Lock(path, hint=hint, **words))
                taken.callback(locks[-1].release)
            taken.pop_all()  # they are kept only where all could be had
        return locks


def _is_aside() -> bool:
    return bool(os.environ.get("JUPYTER_GPU_RUNTIME_DIR"))


def main() -> None:
    """The entry of `python -m jupyter_gpu.broker.app`."""
    try:
        try:
            GpuBroker.launch_instance()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # whoever read the help has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would try once more at its end
        sys.exit(128 + signal.SIGPIPE)


if __name__ == "__main__":
    main()
