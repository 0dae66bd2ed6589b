"""The supervisor of an attempt: starts it once, drains its output, brings it to its end, writes the outcome.

It outlives the broker and needs nothing from it but files in the attempt's folder: `spec.json` to start from and
`order.json` to yield by (poked by SIGUSR1, found within a second if the poke is lost). It makes the started mark
before anything else; whoever finds the mark made leaves at once. It is the child subreaper, so "no children left"
means that nothing of the whole tree is left, however it forked or hid. The outcome is written as soon as the
main process has ended, and again when the rest of the tree is gone, if there was a rest. It may then take another
attempt, but only once this one's outcome says that its tree is gone: so as long as an outcome does not say so, the
process that the mark names either sees to this very attempt or is dead. Standard library only, no threads:
it is a fork of the launcher.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import time

from ...exits import memory_kills
from . import cgroup, child, files, isolation, outside, procs, saved
from .ending import Ending
from .joblog import JobLog
from .reports import Reports
from .verdict import after_notice, judge, with_hint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_PR_SET_CHILD_SUBREAPER = 36
_LOOK_SECONDS = 1.0
_CHUNK = 64 * 1024
_NOT_THE_COMMANDS_FAULT = (errno.EAGAIN, errno.ENOMEM, errno.ENFILE, errno.EMFILE, *files.FULL)
_libc = ctypes.CDLL(None, use_errno=True)


class Identity:
    """This process, and what stays from one attempt to the next: nothing else does."""

    def __init__(self) -> None:
        os.setsid()
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        me = procs.find(os.getpid())
        if me is None:
            raise ProcessLookupError(errno.ESRCH, "/proc does not show this process")
        self.wake = _wake_on_signals()
        self.marks = files.Marks({"pid": me.pid, "start_ticks": me.start_ticks, "boot_id": procs.boot_id()})


def supervise(me: Identity, folder: str, tell: Callable[..., bool]) -> bool:
    """Run one attempt from its folder, from the mark to the end of its tree.

    True where it is over, on disk too, and the broker was told: only then this process may go on to another.
    """
    spec = files.read_spec(folder)
    if spec is None and os.path.lexists(f"{folder}/{files.MARK}"):  # a start that was asked for twice
        return tell("marked")
    if spec is None:
        raise FileNotFoundError(errno.ENOENT, "cannot be read", f"{folder}/{files.SPEC}")
    outcome = files.Reserved(f"{folder}/{files.OUTCOME}")  # before the mark: without room for it nothing starts
    try:
        mine = me.marks.make(folder)
    except OSError:
        outcome.discard()
        raise
    if not mine:
        outcome.discard()
        return tell("marked")
    files.forget_environment(folder)  # read once: it shall not lie about for as long as the log does
    tell("started", *me.marks.content.values())
    return _Supervisor(folder, spec, tell, outcome).run(me.wake)


class _Supervisor:
    """One attempt while it runs."""

    def __init__(self, folder: str, spec: dict[str, Any], tell: Callable[..., bool], reserved: files.Reserved) -> None:
        self.folder, self.spec, self.tell, self.reserved = folder, spec, tell, reserved
        self.container = outside.Container(folder, spec) if spec.get("container") else None
        self.ending = Ending(folder, self.container)
        self.log = JobLog(folder, spec["log_limit_bytes"])
        self.main = 0
        #: When it was started (monotonic: the clock of the wall may jump).
        self.began = time.monotonic()
        self.status: int | None = None
        self.tree_gone = False
        self.said = b""
        #: What the child found on its way to exec; `step` in it means that it failed there.
        self.findings: dict[str, Any] = {}
        self.launched = False
        self.outcome: dict[str, Any] = {}
        #: When to look for an order next (monotonic).
        self.look_at = time.monotonic() + _LOOK_SECONDS
        #: The broker has heard that all is over.
        self.told = False

    def run(self, wake: int) -> bool:
        """From the fork to the empty tree; whether all of it is known."""
        self.ending.look()
        if self.ending.order:  # ordered before it began; the mark is ours, so nobody else will start it either
            self._never_start()
        else:
            self._start(wake)
        # An engine may leave a child of its own to us, which would belong to the next attempt.
        return self.told and self.outcome.get("gone") is True and self.container is None

    def _start(self, wake: int) -> None:
        self.spec["cgroups"] = cgroup.make(self.spec["cgroups"])
        isolation.prepare(self.spec)
        reports = Reports(self.folder, self.spec)
        output, report = self._fork()
        takers = {wake: self._take_signals, output: self._take_output, report: self._take_findings}
        poll = select.poll()
        for fd in takers:
            poll.register(fd, select.POLLIN if fd != report else 0)  # of the findings only the end is waited for
        while not self.tree_gone:
            for fd, _ in poll.poll(self.ending.wait_seconds(_LOOK_SECONDS) * 1000 + 1):
                if not takers[fd](fd):
                    poll.unregister(fd)
            self._reap()
            if self.status is not None and not self.outcome:
                self._take_rest(output)
                self._take_findings(report)
                reports.close(self.log.tail)
                self._main_has_ended()
            if self.look_at <= time.monotonic():
                self.ending.look()
                self._take_findings(report)  # more of them than the pipe holds
                reports.look(self.log.tail)
                self.look_at = time.monotonic() + _LOOK_SECONDS
            self.ending.act(launched=self.launched, cgroups=self.spec["cgroups"])
        if not self.outcome.get("gone"):
            self._take_rest(output)
            self._tree_has_ended()
        os.close(output)
        os.close(report)

    def _never_start(self) -> None:
        reason = (self.ending.order or {}).get("reason")
        self.outcome = files.never_started(f"ordered to yield ({reason}) before it began; nothing was started")
        self.tree_gone = True
        self.log.close()
        self._publish()

    def _fork(self) -> tuple[int, int]:
        output, output_end = os.pipe2(os.O_CLOEXEC)
        report, report_end = os.pipe2(os.O_CLOEXEC)
        me = os.getpid()
        self.began = time.monotonic()
        self.main = os.fork()
        if not self.main:
            child.become(self.spec, me, output_end, report_end)
        os.close(output_end)
        os.close(report_end)
        os.set_blocking(output, False)
        os.set_blocking(report, False)
        return output, report

    # --- what arrives -----------------------------------------------------------------------------

    def _take_signals(self, fd: int) -> bool:
        numbers = _read(fd)
        if numbers and signal.SIGUSR1 in numbers:  # a poke: there is an order
            self.look_at = 0.0
        return numbers != b""

    def _take_output(self, fd: int) -> bool:
        data = _read(fd)
        if data:
            self.log.write(data)
        return data != b""

    def _take_rest(self, fd: int) -> None:
        """What is in the pipe now; not what a talkative left-over may go on to say."""
        for _ in range(16):
            data = _read(fd)
            if not data:
                return
            self.log.write(data)

    def _take_findings(self, fd: int) -> bool:
        while data := _read(fd):
            self.said += data
        if data is None:
            return True
        # The pipe closes itself on exec: now it is the job, or it has told why not.
        for line in self.said.splitlines():
            self.findings |= json.loads(line)
        self.said, self.launched = b"", "step" not in self.findings
        found = isolation.found(self.spec, self.findings)
        if found and (found["opened"] or found["missing"]):  # the broker need not wait for the end to know
            self.tell("open", found)
        return False

    def _reap(self) -> None:
        """All children that have ended: the main process, and whatever of its tree lost its own parent."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                if pid == self.main:
                    self.status = status
        self.tree_gone = self.container is None or self.container.is_gone()

    # --- the end ----------------------------------------------------------------------------------

    def _main_has_ended(self) -> None:
        code = signal_number = None
        if self.status is not None and os.WIFSIGNALED(self.status):
            signal_number = os.WTERMSIG(self.status)
        elif self.status is not None:
            code = os.WEXITSTATUS(self.status)
        at, ran_seconds, yielded = time.time(), round(time.monotonic() - self.began, 3), self.ending.since_notice()
        if "step" in self.findings:
            self.outcome = self._launch_failed()
        elif code and isolation.never_got_inside(self.spec, self.findings) and not self.ending.order:
            self.outcome = isolation.failed(self.log.tail)
        elif code and self.container and not self.ending.order and (it := self.container.failed(code, self.log.tail)):
            self.outcome = it
        else:
            end, detail = judge(code, signal_number, self.log.tail, self._memory_kills() if code != 0 else 0)
            self.outcome = {"end": end, "exit_code": code, "signal": signal_number}
            before = self.findings.get("resume_from")
            self.outcome |= saved.look(self.spec, before, ran_seconds=ran_seconds, ended_at=at)
            if self.outcome.pop("is_full", False) and end == "failed":
                detail = with_hint(detail, "the disk that its checkpoints lie on is full")
            if why := self.outcome.pop("why", ""):
                detail = with_hint(detail, why)
            if self.ending.noticed_at is not None and end in {"failed", "succeeded"} and not self.outcome["finished"]:
                detail = after_notice(code, signal_number, detail, self.outcome)
            self.outcome["detail"] = detail
        self.outcome |= {"ended_at": at, "yield_seconds": yielded}
        if self.tree_gone:
            cgroup.remove(self.spec["cgroups"])
            self.log.close()
        else:
            self.ending.main_has_ended(self.spec["leftover_seconds"])
        self._publish()

    def _memory_kills(self) -> int:
        told = self.container is not None and self.container.ran_out_of_memory
        return max(memory_kills(self.spec["cgroups"]), int(told))

    def _tree_has_ended(self) -> None:
        cgroup.remove(self.spec["cgroups"])
        self.log.close()
        with contextlib.suppress(OSError):  # the first writing holds all that counts
            files.write_whole(f"{self.folder}/{files.OUTCOME}", self._whole_outcome())
            self.outcome["gone"] = True
        self.told = self.tell("gone")

    def _launch_failed(self) -> dict[str, Any]:
        step, number, text = (self.findings[name] for name in ("step", "errno", "text"))
        ours = number in _NOT_THE_COMMANDS_FAULT or not step.startswith(("start", "enter"))
        detail = f"could not {step}: {text}" + (f" (errno {number}, {errno.errorcode[number]})" if number else "")
        return {"end": "launch-failed", "detail": detail[: files.LONGEST_DETAIL], "engine_fault": ours}

    def _whole_outcome(self) -> dict[str, Any]:
        most = files.MOST_NAMED  # a job that starts and loses things for ever must not fill the outcome with it
        return {
            "noticed": self.ending.noticed_at is not None,
            "noticed_at": self.ending.noticed_at,
            "noticed_processes": self.ending.noticed[:most],
            "forced": self.ending.forced[:most],
            "order": self.ending.order,
            "resume_from": self.findings.get("resume_from"),
            "skipped_checkpoints": self.findings.get("skipped", [])[:most],
            "isolation": isolation.found(self.spec, self.findings),
            "log_bytes": self.log.size,
            "log_gaps": self.log.gaps[:most],
            **self.outcome,
            "gone": self.tree_gone,
        }

    def _publish(self) -> None:
        """Write the outcome. It is the only witness, so a disk without room is waited for."""
        while True:
            try:
                self.reserved.publish(whole := self._whole_outcome())
            except OSError as error:
                if error.errno not in files.FULL:
                    raise
                time.sleep(_LOOK_SECONDS)
            else:
                self.reserved.close()
                self.outcome["gone"] = whole["gone"]
                self.told = self.tell("exited")
                return


def _wake_on_signals() -> int:
    """An fd that is readable after SIGCHLD, and after SIGUSR1, the poke."""
    readable, writable = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGUSR1):
        signal.signal(number, lambda _number, _frame: None)
    return readable


def _read(fd: int) -> bytes | None:
    """What is there; empty at the end of the file, None where there is nothing now."""
    try:
        return os.read(fd, _CHUNK)
    except BlockingIOError:
        return None
