"""A small Slurm of one node on this machine, where Debian's packages slurm-wlm and munge are installed."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ports import free_port

_NEEDED = ("munged", "slurmctld", "slurmd", "sbatch")
needs_slurm = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, _NEEDED)),
    reason="needs root and a Slurm that can be started: apt-get install slurm-wlm munge",
)

_CONF = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={at}/munge.socket,cred_expire=10
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={at}/state
SlurmdSpoolDir={at}/spool
SlurmctldPidFile={at}/slurmctld.pid
SlurmdPidFile={at}/slurmd.pid
SlurmctldLogFile={at}/slurmctld.log
SlurmdLogFile={at}/slurmd.log
PlugStackConfig={at}/plugstack.conf
MailProg=/bin/true
MpiDefault=none
SwitchType=switch/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={node_port} CPUs=16 RealMemory=64000 Gres=gpu:fake:4
PartitionName=all Nodes=n1 Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    """One that runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.environ = {"PATH": os.environ["PATH"], "SLURM_CONF": str(folder / "slurm.conf")}

    def sbatch(self, text: str, *options: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Hand a script to the real sbatch."""
        script = self._folder / "job.sh"
        script.write_text(text)
        return subprocess.run(
            ["sbatch", *options, f"--output={self._folder}/%A_%a.log", str(script)],
            env=self.environ | environ,
            check=False,
            capture_output=True,
            text=True,
            timeout=50,
        )


@contextlib.contextmanager
def a_slurm() -> Iterator[Slurm]:
    """Start the three daemons, wait for the node, and end them."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    folder.chmod(0o755)
    _write(folder)
    started: list[subprocess.Popen[bytes]] = []
    try:
        munge = ["--key-file", "munge.key", "--socket", "munge.socket", "--pid-file", "munged.pid"]
        munge += ["--seed-file", "munge.seed", "--log-file", "munged.log"]
        paths = [str(folder / word) if not word.startswith("--") else word for word in munge]
        started.append(_start(folder, "munged", "-F", "--force", *paths))
        _until((folder / "munge.socket").exists, started, folder)
        started.append(_start(folder, "slurmctld", "-D", "-f", str(folder / "slurm.conf")))
        started.append(_start(folder, "slurmd", "-D", "-N", "n1", "-f", str(folder / "slurm.conf")))
        it = Slurm(folder)
        _until(lambda: _is_idle(it), started, folder)
        yield it
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _write(folder: Path) -> None:
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o400)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (folder / "plugstack.conf").write_text("")
    port, node_port = free_port(), free_port()
    host = socket.gethostname().split(".", maxsplit=1)[0]
    (folder / "slurm.conf").write_text(_CONF.format(at=folder, host=host, port=port, node_port=node_port))
    lines = []
    for number in range(4):
        # Slurm sets no CUDA_VISIBLE_DEVICES for what is no character device; nothing opens this one.
        os.mknod(folder / f"gpu{number}", 0o20666, os.makedev(240, number))
        lines.append(f"NodeName=n1 Name=gpu Type=fake File={folder}/gpu{number}\n")
    (folder / "gres.conf").write_text("".join(lines))


def _start(folder: Path, *argv: str) -> subprocess.Popen[bytes]:
    with (folder / f"{argv[0]}.out").open("wb") as out:
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)


def _is_idle(it: Slurm) -> bool:
    done = subprocess.run(["sinfo", "-h", "-o", "%t"], env=it.environ, check=False, capture_output=True, text=True)
    return done.stdout.strip() == "idle"


def _until(is_so, started, folder: Path) -> None:
    """Wait for what only a file or a question tells."""
    deadline = time.monotonic() + 40
    while not is_so():
        said = "\n".join(path.read_text(errors="replace")[-500:] for path in folder.glob("*.out"))
        assert time.monotonic() < deadline, said
        assert all(process.poll() is None for process in started), said
        time.sleep(0.05)
