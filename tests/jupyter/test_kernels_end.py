"""How a kernel's reservation ends, passes on, or lives on: nothing leaks, and nothing is granted to nobody."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from jupyter_gpu import pins
from jupyter_gpu.client import AsyncClient
from jupyter_gpu.errors import Conflict
from jupyter_gpu.jupyter import provisioner, restarting
from jupyter_gpu.jupyter.kernels import Kernels
from jupyter_gpu.model import Ask, Kind, State, SubmitBody

from .kernels_ground import NOTHING, a_lab, a_lab_broker, broker, environment_of, hold, is_alive, play, until

__all__ = ["broker"]
pytestmark = pytest.mark.timeout(120)

#: A cell that ends when a file is there.
COMPUTES = "import pathlib, time\nwhile not pathlib.Path({!r}).exists(): time.sleep(0.02)"


def uuids(view):
    """As they stand in a variable."""
    return ",".join(view.devices)


async def pinned_at_start(lab, path="one.ipynb"):
    """A notebook whose kernel was started with a device."""
    session, kernel = await lab.start("python3", path)
    held = await lab.reserve(kernel)
    await lab.restart(kernel)
    await lab.ready(kernel)
    assert lab.started_with(kernel)[pins.VISIBLE] == uuids(held)
    return session, kernel, held


def test_changing_the_kernel_moves_what_it_holds(broker, tmp_path):
    """One lease, one kernel at a time: the old one ends first, and the new one starts pinned; of any language."""

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            session, old, held = await pinned_at_start(lab)
            before = lab.pid(old)
            new = await lab.change(session, "python-other")
            assert not is_alive(before)
            assert lab.started_with(new)[pins.VISIBLE] == uuids(held)
            lease = await lab.lease(held.id)
            assert (lease.state, lease.holder.name, lease.holder.pid) == (State.ACTIVE, new, lab.pid(new))
            assert [it.kernel_id for it in lab.kernels.views()] == [new]
            last = await lab.change(session, "shell")
            assert lab.started_with(last)[pins.VISIBLE] == uuids(held)
            assert len(await lab.mine()) == 1
            await lab.shut_down(session)
            assert (await lab.ended(held.id)).end == "released"

    play(story)


def test_where_the_session_is_not_known_the_changed_kernel_is_pinned_afterwards(broker, tmp_path, monkeypatch):
    """Then the old one ends last, and the row of its session says who comes after it; live where that can be."""
    monkeypatch.setattr(restarting, "READY_SECONDS", 0.5)  # the one that speaks nothing never is

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            session, _, held = await pinned_at_start(lab)
            lab.kernels._sessions.kernel_before = lambda: None
            new = await lab.change(session, "python-other")
            await until(lambda: lab.view(new).pinned, "the pin")
            assert await lab.sees(new) == uuids(held)
            assert (await lab.lease(held.id)).holder.name == new
            last = await lab.change(session, "shell")
            await until(lambda: lab.view(last).pinned, "the restart")
            assert lab.started_with(last)[pins.VISIBLE] == uuids(held)

    play(story)


def test_a_place_in_line_moves_with_the_kernel(broker, tmp_path):
    """A changed kernel waits on where the old one stood."""

    async def story():
        other = hold(broker, 2)
        async with a_lab(broker, tmp_path) as lab:
            session, kernel = await lab.start()
            waiting = await lab.reserve(kernel)
            new = await lab.change(session, "python-other")
            await until(lambda: lab.view(new).workload == waiting.id, "it waits")
            assert (await lab.lease(waiting.id)).state is State.QUEUED
            broker.client.release(other.id)
            await until(lambda: lab.view(new).pinned, "the grant")

    play(story)


def test_a_change_that_fails_leaks_nothing(broker, tmp_path):
    """The new kernel cannot be started: the old one has ended for it, and gives back."""

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            session, _, held = await pinned_at_start(lab)
            answer = await lab.client.patch(f"api/sessions/{session}", json={"kernel": {"name": "missing"}})
            assert answer.status_code >= 500
            assert (await lab.ended(held.id)).end == "released"
            assert not lab.server.app.kernel_manager._pending_kernels

    play(story)


def test_a_first_start_that_fails_leaves_nothing_behind(broker, tmp_path):
    """No reservation, and nothing that a server which ends would wait for."""

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            body = {"path": "m.ipynb", "name": "m.ipynb", "type": "notebook", "kernel": {"name": "missing"}}
            assert (await lab.client.post("api/sessions", json=body)).status_code == 500
            assert not lab.server.app.kernel_manager._pending_kernels
            assert lab.kernels.kernels == {}
            assert await lab.mine() == []

    play(story)


async def _is_held_by(lab, workload, kernel):
    return (await lab.lease(workload)).holder.pid == lab.pid(kernel)


def test_a_crash_keeps_the_lease_and_is_said(broker, tmp_path):
    """Its new process is pinned; a state of before says nothing of it (jupyter-server/jupyter_server#1395)."""

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            _, kernel, held = await pinned_at_start(lab)
            await lab.run(kernel, "import time\nwhile True: time.sleep(0.1)", wait=False)
            before = lab.pid(kernel)
            os.kill(before, signal.SIGKILL)
            await until(lambda: lab.pid(kernel) != before, "the automatic restart")
            assert lab.started_with(kernel)[pins.VISIBLE] == uuids(held)
            view = lab.view(kernel)
            assert view.reason == "restarted after a crash (killed by signal 9)"
            assert view.execution_state != "busy"
            assert view.pinned
            await until(lambda: _is_held_by(lab, held.id, kernel), "the broker knows the new process")
            await lab.ready(kernel)
            await lab.restart(kernel)
            assert lab.view(kernel).reason == ""

    play(story)


@pytest.mark.parametrize(
    ("end", "how"),
    [
        ("os._exit(3)", "exit code 3"),
        ("os._exit(0)", "exit code 0"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "segmentation fault (signal 11)"),
        (
            "open('memory.events', 'w').write('oom_kill 2'); os.kill(os.getpid(), signal.SIGKILL)",
            "killed by signal 9; while it ran the system killed 1 process of its server for want of host memory",
        ),
    ],
)
def test_how_a_kernel_died_is_said(broker, tmp_path, monkeypatch, end, how):
    """As far as it is known: memory is blamed on a counter only (jupyter-server/jupyter_server#1395)."""
    (tmp_path / "memory.events").write_text("oom_kill 1\n")
    monkeypatch.setattr(provisioner, "_cgroups", lambda: [str(tmp_path)])

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            _, kernel, _ = await pinned_at_start(lab)
            before = lab.pid(kernel)
            said = []
            monkeypatch.setattr(lab.kernels.log, "warning", lambda text, *words: said.append(text % words))
            # It dies only once its page has heard that it computes.
            await lab.run(
                kernel,
                f"import os, signal, time\nos.chdir({str(tmp_path)!r})\n"
                f"while not os.path.exists('go'):\n    time.sleep(0.01)\n{end}",
                wait=False,
            )
            (tmp_path / "go").touch()
            await until(lambda: lab.pid(kernel) not in (None, before), "the automatic restart")
            await lab.ready(kernel)
            assert lab.view(kernel).reason == f"restarted after a crash ({how})"
            (record,) = [it for it in said if "has died" in it]
            assert record == f"Kernel {kernel} of one.ipynb has died and is started anew: {how}."

    play(story)


def test_a_kernel_that_crashes_again_and_again_gives_back(broker, tmp_path):
    """Jupyter gives it up without cleaning up after it."""

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            _, kernel, held = await pinned_at_start(lab)
            manager = lab.server.app.kernel_manager
            restarter = manager.get_kernel(kernel)._restarter
            for _ in range(4 * restarter.restart_limit):
                if kernel not in manager:
                    break
                process = manager.get_kernel(kernel).provisioner.process
                process.kill()
                await until(lambda it=process: it.poll() is not None, "its end, with all its threads")
                await restarter.poll()  # it looks by itself as well, but takes its time
            assert kernel not in manager
            assert (await lab.ended(held.id)).end == "released"
            assert kernel not in lab.kernels.kernels

    play(story)


def test_a_restart_on_a_taken_port_keeps_the_lease(broker, tmp_path, monkeypatch):
    """The start fails, is tried again, and finds what it held (jupyter-server/jupyter_server#481)."""
    from jupyter_client.provisioning import local_provisioner

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            _, kernel, held = await pinned_at_start(lab)
            manager = lab.server.app.kernel_manager.get_kernel(kernel)
            with monkeypatch.context() as patched:
                patched.setattr(local_provisioner, "launch_kernel", _address_in_use)
                with pytest.raises(OSError, match="Address already in use"):
                    await manager.restart_kernel(newports=True)
            assert (await lab.lease(held.id)).state is State.ACTIVE
            await manager.restart_kernel(newports=True)
            assert lab.started_with(kernel)[pins.VISIBLE] == uuids(held)
            await until(lambda: _is_held_by(lab, held.id, kernel), "the broker knows the new process")

    play(story)


def _address_in_use(*_args, **_words):
    raise OSError(98, "Address already in use")


def test_two_restarts_at_once_leave_one_process(broker, tmp_path):
    """Jupyter starts two, and would lose sight of the first: it would keep the GPU even after a shutdown."""

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            session, kernel, held = await pinned_at_start(lab)
            manager = lab.server.app.kernel_manager.get_kernel(kernel)
            await asyncio.gather(manager.restart_kernel(), manager.restart_kernel(), return_exceptions=True)
            pinned = [pid for pid in _pids() if _sees(pid, uuids(held))]
            assert pinned == [lab.pid(kernel)]
            await lab.shut_down(session)
            assert (await lab.ended(held.id)).end == "released"

    play(story)


def _pids():
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _sees(pid, value):
    try:
        return environment_of(pid).get(pins.VISIBLE) == value and is_alive(pid)
    except OSError:
        return False


def test_a_closed_tab_while_waiting_is_granted_nothing_for_long(broker, tmp_path):
    """Where a restart is needed and nobody makes it, the grant goes back and the view says why."""

    async def story():
        other = hold(broker, 2)
        async with a_lab(broker, tmp_path) as lab:
            lab.kernels._attach_seconds = 1.0
            _, kernel = await lab.start("shell")
            waiting = await lab.reserve(kernel)
            broker.client.release(other.id)
            ended = await lab.ended(waiting.id)
            assert (ended.end, ended.granted_at is None) == ("released", True)
            await until(lambda: "nobody restarted the kernel" in lab.view(kernel).reason, "the reason")
            assert lab.view(kernel).workload is None
            assert lab.started_with(kernel)[pins.VISIBLE] == NOTHING

    play(story)


def test_a_busy_kernel_is_pinned_when_it_is_idle_and_never_too_late(broker, tmp_path):
    """What a kernel comes to only after its lease was lost changes nothing."""

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            _, kernel = await lab.start()
            first, second = tmp_path / "first", tmp_path / "second"
            await lab.run(kernel, COMPUTES.format(str(first)), wait=False)
            await until(lambda: lab.view(kernel).execution_state == "busy", "it computes")
            await lab.reserve(kernel)
            assert (await lab.pin(kernel)).state == "restart-needed"
            first.touch()
            await until(lambda: lab.view(kernel).pinned, "the pin after the cell")
            await lab.give_back(kernel)

            manager = lab.server.app.kernel_manager.get_kernel(kernel)
            await lab.run(kernel, COMPUTES.format(str(second)), wait=False)
            from jupyter_gpu.jupyter.silent import change_pin

            assert await change_pin(manager, ["GPU-x"], seconds=0.5) == "busy"
            second.touch()
            await until(lambda: lab.view(kernel).execution_state == "idle", "the cell's end")
            assert await lab.sees(kernel) == NOTHING

    play(story)


def ask_for_both():
    """Somebody else's ask that needs every device."""
    from tests.stories.scene import this_process

    return SubmitBody(kind=Kind.RESERVATION, ask=Ask(devices=2), holder=this_process())


def test_time_over_is_a_notice_a_grace_and_an_unpinned_restart(monkeypatch, tmp_path):
    """Where somebody waits: the kernel lives on without its GPU, and the view says why; it is never ended by force."""

    async def story(broker):
        async with a_lab(broker, tmp_path) as lab:
            _, kernel = await lab.start()
            held = await lab.reserve(kernel, duration_seconds=2)
            await until(lambda: lab.view(kernel).pinned, "the pin")
            await lab.run(kernel, "import time\nwhile True: time.sleep(0.1)", wait=False)
            before = lab.pid(kernel)
            waiting = await asyncio.to_thread(broker.client.submit, ask_for_both())
            await until(lambda: lab.kernels.kernels[kernel].notice is not None, "the notice")
            assert lab.pid(kernel) == before  # the grace is the user's
            ended = await lab.ended(held.id, 40)
            assert ended.end in ("released", "expired")
            assert not any("overdue" in it.event for it in broker.client.events(held.id))
            await until(lambda: lab.pid(kernel) != before, "the restart")
            await lab.ready(kernel)
            assert lab.started_with(kernel)[pins.VISIBLE] == NOTHING
            assert "its time was over" in lab.view(kernel).reason
            granted = await asyncio.to_thread(broker.client.wait, waiting.id, "active", 20)
            assert len(granted.devices) == 2
            assert is_alive(lab.pid(kernel))

    with a_lab_broker(monkeypatch, reservation_grace_seconds=12) as broker:
        play(lambda: story(broker))


def test_who_must_leave_a_drained_gpu_reads_who_drained_it_and_why(monkeypatch, tmp_path):
    """The operator's words are in the notice, and stand with the kernel when it has gone on without its GPU."""

    async def story(broker):
        async with a_lab(broker, tmp_path) as lab:
            _, kernel = await lab.start()
            held = await lab.reserve(kernel)
            await until(lambda: lab.view(kernel).pinned, "the pin")
            await asyncio.to_thread(broker.client.drain, held.devices[0], "node maintenance")
            said = f"drained by {broker.client.status().caller}: node maintenance"
            await until(lambda: lab.kernels.kernels[kernel].notice is not None, "the notice")
            assert lab.kernels.kernels[kernel].notice.detail == said
            await lab.ended(held.id, 40)
            await until(lambda: lab.view(kernel).workload is None, "the end")
            assert f"its GPU is taken out of service ({said})" in lab.view(kernel).reason

    with a_lab_broker(monkeypatch, reservation_grace_seconds=12) as broker:
        play(lambda: story(broker))


def test_what_is_given_back_elsewhere_is_taken_from_the_kernel(monkeypatch, tmp_path):
    """`jupyter gpu release` in a terminal: the process must not go on seeing what is nobody's."""

    async def story(broker):
        async with a_lab(broker, tmp_path) as lab:
            _, kernel, held = await pinned_at_start(lab)
            before = lab.pid(kernel)
            broker.client.release(held.id)
            await until(lambda: lab.pid(kernel) != before, "the restart")
            assert lab.started_with(kernel)[pins.VISIBLE] == NOTHING
            await until(lambda: "is over" in lab.view(kernel).reason, "the reason")
            assert (await lab.ended(held.id)).end == "released"

    # A broker that is less patient than the server is quick ends the process itself, and that is a crash.
    with a_lab_broker(monkeypatch, kill_after_seconds=30, clear_seconds=40) as broker:
        play(lambda: story(broker))


def test_a_page_that_shows_the_kernel_makes_the_restart(tmp_path, monkeypatch):
    """One page claims it, the others do not, and the server keeps its hands off meanwhile."""
    monkeypatch.setattr(restarting, "CLAIM_SECONDS", 10.0)
    told = []

    async def story(broker):
        async with a_lab(broker, tmp_path) as lab:
            _, kernel, held = await pinned_at_start(lab)
            lab.kernels.on_restart.append(lambda *words: told.append(words))
            lab.server.app.kernel_manager.notify_connect(kernel)
            broker.client.release(held.id)
            await until(lambda: told, "the page is told")
            assert told[0][0] == kernel
            assert "is over" in told[0][1]
            before = lab.pid(kernel)
            assert [lab.kernels.claim(kernel), lab.kernels.claim(kernel)] == [True, False]
            await lab.restart(kernel)
            assert lab.pid(kernel) != before
            await until(lambda: lab.view(kernel).workload is None, "its end")
            assert not lab.kernels.claim(kernel)

    # The broker, too, is patient here: else it ends what is still on a GPU that was given back.
    with a_lab_broker(monkeypatch, kill_after_seconds=30, clear_seconds=40) as broker:
        play(lambda: story(broker))


def test_what_a_kernel_reserves_itself_is_kept_as_well(broker, tmp_path):
    """`%gpu reserve` asks the broker from within the kernel: told of it, or looking, the server follows it."""

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            session, kernel = await lab.start()
            from jupyter_gpu.holding import kernel_holder

            body = SubmitBody(kind=Kind.RESERVATION, ask=Ask(), holder=kernel_holder(kernel, lab.pid(kernel)))
            async with AsyncClient(start=False) as client:
                held = await client.submit(body)
            lab.kernels.see(held)
            await until(lambda: lab.view(kernel).pinned, "the pin")
            with pytest.raises(Conflict, match=f"has reservation {held.id} already"):
                await lab.reserve(kernel)
            await lab.shut_down(session)
            assert (await lab.ended(held.id)).end == "released"

            session, kernel = await lab.start("python3", "two.ipynb")
            body = SubmitBody(kind=Kind.RESERVATION, ask=Ask(), holder=kernel_holder(kernel, lab.pid(kernel)))
            async with AsyncClient(start=False) as client:
                held = await client.submit(body)
            await lab.restart(kernel)  # nobody told: a restart looks
            assert lab.started_with(kernel)[pins.VISIBLE] == uuids(held)

    play(story)


def test_an_interrupt_changes_no_lease(broker, tmp_path):
    """The foreground child stops, what was sent to the queue goes on (marimo-team/marimo#10468)."""

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            _, kernel, held = await pinned_at_start(lab)
            submit = "import jupyter_gpu; j = jupyter_gpu.submit(['sleep', '60']); print(j.id)"
            job = int(await lab.run(kernel, submit))
            await asyncio.to_thread(broker.client.wait, job, "active", 20)
            await lab.run(kernel, "import subprocess; subprocess.run(['sleep', '601'])", wait=False)
            await until(lambda: _child_of(lab.pid(kernel)), "the child")
            child = _child_of(lab.pid(kernel))
            answer = await lab.client.post(f"api/kernels/{kernel}/interrupt")
            assert answer.status_code == 204
            await until(lambda: not is_alive(child), "the child stops")
            assert (await lab.lease(job)).state is State.ACTIVE
            assert (await lab.lease(held.id)).state is State.ACTIVE
            assert lab.view(kernel).pinned
            await asyncio.to_thread(broker.client.cancel, job)

    play(story)


def _child_of(pid):
    found = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    names = {child: Path(f"/proc/{child}/cmdline").read_text() for child in found}
    return next((child for child, name in names.items() if "601" in name), None)


def test_what_a_kernel_leaves_behind_keeps_the_gpu_from_others(broker, tmp_path):
    """A child in a session of its own survives every shutdown: it is named, and nobody gets its GPU meanwhile.

    jupyter/jupyter_client#104
    """

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            session, kernel, held = await pinned_at_start(lab)
            start = "import subprocess; p = subprocess.Popen(['sleep', '602'], start_new_session=True); print(p.pid)"
            child = int(await lab.run(kernel, start))
            try:
                await lab.shut_down(session)
                waiting = await asyncio.to_thread(broker.client.submit, ask_for_both())
                await until(lambda: _says(lab, held.id, f"process {child}"), "it is named to its owner")
                await until(lambda: _is_named(lab, held.devices[0], child), "it is named at the device", 30)
                assert (await lab.lease(waiting.id)).state is State.QUEUED
            finally:
                os.kill(child, signal.SIGKILL)
            granted = await asyncio.to_thread(broker.client.wait, waiting.id, "active", 20)
            assert len(granted.devices) == 2

    play(story)


async def _says(lab, workload, what):
    return what in (await lab.lease(workload)).reason


async def _is_named(lab, uuid, pid):
    return any(it.uuid == uuid and str(pid) in it.condition_detail for it in await lab.devices())


def test_a_server_that_shuts_down_starts_nothing_and_gives_everything_back(broker, tmp_path):
    """No new kernel and no new lease while it ends, and each GPU once (jupyter/notebook#5991)."""

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            _, kernel, held = await pinned_at_start(lab)
            _, second = await lab.start("python3", "two.ipynb")
            other = await lab.reserve(second)
            processes = [lab.pid(kernel), lab.pid(second)]
            kernels: Kernels = lab.kernels
            await kernels.close()
            with pytest.raises(Conflict, match="shutting down"):
                await lab.reserve(second)
            with pytest.raises(RuntimeError, match="shutting down"):
                await lab.server.app.kernel_manager.start_kernel(kernel_name="python3")
        for it in (held, other):
            assert broker.client.wait(it.id, "ended", 20).end == "released"
            assert [event.event for event in broker.client.events(it.id)].count("released") == 1
        assert not any(map(is_alive, processes))
        assert list(broker.client.workloads(mine=True)) == []

    play(story)


def test_a_restart_that_is_under_way_is_not_cut_short(broker, tmp_path):
    """To call it off half way would leave a kernel that Jupyter can neither use nor shut down."""

    async def story():
        async with a_lab(broker, tmp_path) as lab:
            _, kernel, held = await pinned_at_start(lab)
            gives_back = asyncio.create_task(lab.give_back(kernel))
            manager = lab.server.app.kernel_manager.get_kernel(kernel)
            await until(lambda: manager.shutting_down, "the restart has begun")
            gives_back.cancel()
            await until(lambda: lab.kernels._restarts._under_way == set(), "it is over")
            assert manager.ready.done()
            assert is_alive(lab.pid(kernel))
        assert broker.client.wait(held.id, "ended", 20).end == "released"

    play(story)


def test_the_brokers_restart_is_survived(monkeypatch, tmp_path):
    """Away, a kernel restarts with what it was last known to hold; back, the broker learns of its new process."""
    with a_lab_broker(monkeypatch, devices=1) as broker:

        async def story():
            async with a_lab(broker, tmp_path) as lab:
                _, kernel, held = await pinned_at_start(lab)
                os.kill(broker.pid, signal.SIGKILL)
                began = time.monotonic()
                await lab.restart(kernel)
                assert time.monotonic() - began < 15
                assert lab.started_with(kernel)[pins.VISIBLE] == uuids(held)
                await asyncio.to_thread(_again, broker)
                await until(lambda: _holds(lab, held.id, lab.pid(kernel)), "the new process is known")
                assert (await lab.lease(held.id)).state is State.ACTIVE
                assert lab.view(kernel).pinned

        play(story)


def _again(broker):
    from jupyter_gpu.spawn import start_broker

    start_broker([], environ=broker.environment)


async def _holds(lab, workload, pid):
    return (await lab.lease(workload)).holder.pid == pid
