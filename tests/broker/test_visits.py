"""Nobody locks the others out: connections are counted before anything is read, and whoever says nothing is let go."""

import asyncio
import errno
import logging
import os
import resource
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from jupyter_gpu.broker import listen, visits
from jupyter_gpu.broker.api.routes import make_application
from jupyter_gpu.broker.auth import Gate
from jupyter_gpu.broker.listen import Doors
from jupyter_gpu.broker.visits import Book
from tests.conftest import Places
from tests.ports import free_port

from .api_ground import play, tokens
from .ground import a_loop

HALF = b"GET /api/v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\n"


class ForAll(Book):
    """A book in which the tests' own account, which may be root, has a budget like any other."""

    def free(self, uid: int, *, is_free: bool) -> None:
        pass

    def _has_room(self, key: object) -> bool:
        return super()._has_room(("account", key) if isinstance(key, int) else key)

    def enter(self, sock: socket.socket, tls: ssl.SSLContext | None = None) -> visits.Visit | None:
        visit = super().enter(sock, tls)
        if visit is not None and isinstance(visit.key, int):
            self.leave(visit)
            visit.key = ("account", visit.key)
            self._open[visit.key] += 1
        return visit


@asynccontextmanager
async def served(folder: Path, book: Book) -> AsyncIterator[tuple[Path, int]]:
    """A broker behind real doors: its socket, and its port."""
    async with a_loop(folder / "state", count=1) as (loop, _):
        port = free_port()
        gate = Gate(system=False, tokens=tokens(), book=book)
        doors = Doors(
            make_application(loop, gate),
            socket_path=folder / "s",
            for_everybody=True,
            tcp=f"127.0.0.1:{port}",
            make_folder=lambda: None,
            book=book,
        )
        doors.open()
        try:
            yield folder / "s", port
        finally:
            doors.close()
            await doors._server.close_all_connections()


async def say(where: Path | int, words: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect and say something."""
    if isinstance(where, int):
        reader, writer = await asyncio.open_connection("127.0.0.1", where)
    else:
        reader, writer = await asyncio.open_unix_connection(str(where))
    writer.write(words)
    return reader, writer


async def heard(reader: asyncio.StreamReader) -> bytes:
    """The first line that comes; nothing where the connection ends first."""
    try:
        return await asyncio.wait_for(reader.readline(), 20)
    except ConnectionError:
        return b""


def test_an_account_has_a_budget_of_connections(tmp_runtime: Places) -> None:
    """The one too many is told so and closed; when one ends, there is room again."""

    async def story() -> None:
        async with served(tmp_runtime.runtime_dir, ForAll(most_of_one=3)) as (uds, _):
            open_ = [await say(uds, HALF) for _ in range(3)]
            reader, writer = await say(uds, b"")
            assert (await heard(reader)).startswith(b"HTTP/1.1 429")
            assert b"limit-exceeded" in await reader.read()
            writer.close()
            reader, writer = open_[0]
            writer.write(b"Connection: close\r\n\r\n")
            assert b" 200 " in await heard(reader)
            await reader.read()
            writer.close()
            reader, writer = await say(uds, HALF + b"\r\n")
            assert b" 200 " in await heard(reader)
            for _, half in open_[1:]:
                half.close()
            writer.close()

    play(story)


def test_strangers_share_a_small_budget_and_leave_the_socket_alone(tmp_runtime: Places) -> None:
    """Connections over TCP that showed no token take nothing from the accounts; a token shown makes room for others."""

    async def story() -> None:
        async with served(tmp_runtime.runtime_dir, Book(most_strangers=2)) as (uds, port):
            first, second, third = await say(port, HALF), await say(port, b""), await say(port, b"")
            assert (await heard(first[0])).startswith(b"HTTP/1.1 429")
            assert b"limit-exceeded" in await first[0].read()
            local, local_writer = await say(uds, HALF + b"\r\n")
            assert b" 200 " in await heard(local)
            second[1].write(HALF + b"Authorization: Bearer token-of-ada\r\n\r\n")
            assert b" 200 " in await heard(second[0])
            fourth = await say(port, HALF + b"Authorization: Bearer token-of-ada\r\n\r\n")
            assert b" 200 " in await heard(fourth[0])
            third[1].write(HALF + b"Authorization: Bearer token-of-ada\r\n\r\n")
            assert b" 200 " in await heard(third[0])
            for writer in (local_writer, first[1], second[1], third[1], fourth[1]):
                writer.close()

    play(story)


#: In a user namespace of its own: opens as many connections as it is told, then says what it is told on the N-th.
ELSEWHERE = """
import ctypes, socket, sys
print(ctypes.CDLL(None).unshare(0x10000000), flush=True)  # CLONE_NEWUSER
held = []
for line in sys.stdin:
    number, words = line.split(" ", 1)
    while len(held) <= int(number):
        held.append(socket.socket(socket.AF_UNIX))
        held[-1].settimeout(20)
        held[-1].connect(sys.argv[1])
    if words.strip():
        held[int(number)].sendall(words.strip().encode().decode("unicode_escape").encode())
    said = held[int(number)].recv(1 << 16)
    print(said[9:12].decode() or "end", flush=True)
    if said[9:12] == b"403":
        print("end" if not held[int(number)].recv(1 << 16) else "more", flush=True)
"""


def test_user_namespaces_bring_nobody_more_connections(tmp_runtime: Places) -> None:
    """Whom the kernel cannot name in our terms shares the strangers' budget, and lasts by a token alone."""

    async def story() -> None:
        book = Book(most_strangers=2, header_seconds=3.0)
        async with served(tmp_runtime.runtime_dir, book) as (uds, _):
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                "-c",
                ELSEWHERE,
                str(uds),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            to_child, from_child = child.stdin, child.stdout
            assert to_child is not None
            assert from_child is not None
            if (await from_child.readline()).strip() != b"0":
                child.kill()
                pytest.skip("this machine allows no user namespaces; set kernel.unprivileged_userns_clone=1")

            async def ask(number: int, words: bytes) -> bytes:
                to_child.write(b"%d %s\n" % (number, words.replace(b"\r\n", rb"\r\n")))
                return (await from_child.readline()).strip()

            try:
                whole = HALF + b"Authorization: Bearer token-of-ada\r\n\r\n"
                assert await ask(2, whole) == b"200"
                assert book._open[("bearer", "ada")] == 1
                assert await ask(0, b"") == b"429", "the third was let in for the first"
                assert await ask(1, HALF + b"\r\n") == b"403"
                assert (await from_child.readline()).strip() == b"end", "refused, and not kept"
                assert await ask(2, whole) == b"200"
            finally:
                child.kill()
                await child.wait()

    play(story)


def test_nobody_shuts_the_door_by_standing_in_it(tmp_runtime: Places) -> None:
    """Who opens as many connections as strangers may, again and again, keeps nobody out who shows a token."""

    async def story() -> None:
        book = Book(most_strangers=8)
        async with served(tmp_runtime.runtime_dir, book) as (_, port):

            async def stand() -> None:
                while True:
                    reader, writer = await say(port, b"")
                    with closing(writer):
                        await heard(reader)

            crowd = [asyncio.ensure_future(stand()) for _ in range(8)]
            while book.open < 8:
                await asyncio.sleep(0.01)
            for _ in range(10):
                reader, writer = await say(port, HALF + b"Authorization: Bearer token-of-ada\r\n\r\n")
                assert b" 200 " in await heard(reader)
                writer.close()
            for it in crowd:
                it.cancel()
            await asyncio.gather(*crowd, return_exceptions=True)

    play(story)


@pytest.mark.parametrize("over", ["socket", "tcp"])
def test_who_finishes_no_header_is_let_go(tmp_runtime: Places, over: str) -> None:
    """A half-sent request is closed after a while, and a stream that was admitted goes on."""

    async def story() -> None:
        book = Book(header_seconds=0.3)
        async with served(tmp_runtime.runtime_dir, book) as (uds, port):
            where = uds if over == "socket" else port
            stream = await say(
                where, HALF.replace(b"status", b"stream") + b"Authorization: Bearer token-of-ada\r\n\r\n"
            )
            assert b" 200 " in await heard(stream[0])
            half = await say(where, HALF)
            assert await asyncio.wait_for(half[0].read(), 20) == b""
            assert not stream[0].at_eof()
            assert book.open == 1
            stream[1].close()
            half[1].close()

    play(story)


def test_strangers_who_were_refused_go_too(tmp_runtime: Places) -> None:
    """A wrong token is answered, and its connection does not stay."""

    async def story() -> None:
        async with served(tmp_runtime.runtime_dir, Book(header_seconds=0.3)) as (_, port):
            reader, writer = await say(port, HALF + b"Authorization: Bearer wrong\r\n\r\n")
            assert b" 403 " in await heard(reader)
            await asyncio.wait_for(reader.read(), 20)
            writer.close()

    play(story)


def test_no_descriptors_is_a_pause_and_one_line(
    tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Accepting stops for a moment, is logged once, and goes on when there are descriptors again."""

    class Full:
        """A listening socket of a process that has no descriptors left for a while."""

        def __init__(self, inner: socket.socket) -> None:
            self.inner, self.left = inner, 3

        def fileno(self) -> int:
            return self.inner.fileno()

        def close(self) -> None:
            self.inner.close()

        def accept(self) -> object:
            if self.left:
                self.left -= 1
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return self.inner.accept()

    monkeypatch.setattr(listen, "PAUSE_SECONDS", 0.01)
    bind = listen.bind_unix_socket
    monkeypatch.setattr(listen, "bind_unix_socket", lambda *args, **words: Full(bind(*args, **words)))

    async def story() -> None:
        with caplog.at_level(logging.ERROR):
            async with served(tmp_runtime.runtime_dir, Book()) as (uds, _):
                reader, writer = await say(uds, HALF + b"\r\n")
                assert b" 200 " in await heard(reader)
                writer.close()
        assert [it.getMessage() for it in caplog.records if "accepted" in it.getMessage()] == [
            "no connection can be accepted for now: [Errno 24] Too many open files"
        ]

    play(story)


def test_a_small_machine_keeps_descriptors_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the limit is, one account cannot take all, nor all accounts what the broker itself needs."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    book = Book()

    async def story() -> None:
        ours, theirs = socket.socketpair()
        with closing(theirs):
            visit = book.enter(ours)
            assert visit is not None
            visit.close()
        book._open.update({1001: book._most_of_one})
        assert not book._has_room(1001)
        assert book._has_room(1002)
        book._open.update({("many", n): 1 for n in range(128)})
        assert not book._has_room(1002)
        assert book._has_room(0)

    asyncio.run(story())
    assert book._most_of_one < book._most <= 128
