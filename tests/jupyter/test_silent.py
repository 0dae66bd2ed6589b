"""What the server makes of a kernel's answer: a kernel is the user's and may say anything, at any length."""

from __future__ import annotations

import asyncio
import queue
from typing import Any

import pytest
import zmq
import zmq.asyncio
from jupyter_client.session import Session

from jupyter_gpu.jupyter import silent
from jupyter_gpu.jupyter.silent import MOST_ANSWER_BYTES, MOST_OTHERS, change_pin

ASKED = "asked"
SECONDS = 5.0


def told(text: Any, **more: Any) -> dict[str, Any]:
    """An answer to what was asked."""
    return reply({"user_expressions": {"gpu": {"status": "ok", "data": {"text/plain": text}} | more}})


def reply(content: Any, parent: Any = None) -> dict[str, Any]:
    """A message of a kernel."""
    return {"parent_header": {"msg_id": ASKED} if parent is None else parent, "content": content}


class FakeKernel:
    """A kernel's client, and the manager that makes it."""

    def __init__(self, *said: Any) -> None:
        self.said, self.context, self.is_open = list(said), zmq.asyncio.Context(), False
        self.session = Session(key=b"k")

    def client(self, **_words: Any) -> FakeKernel:
        """As the manager."""
        return self

    def start_channels(self, **_words: Any) -> None:
        """As the client."""
        self.is_open = True

    def stop_channels(self) -> None:
        """As the client."""
        self.is_open = False

    def execute(self, *_args: Any, **_words: Any) -> str:
        """As the client."""
        return ASKED

    async def get_shell_msg(self, timeout: float) -> Any:  # noqa: ASYNC109 - jupyter_client's own
        """As the client: what was put, and then nothing for ever."""
        if not self.said:
            await asyncio.sleep(timeout)
            raise queue.Empty
        said = self.said.pop(0)
        if isinstance(said, Exception):
            raise said
        return said


def made_of(*said: Any, seconds: float = SECONDS) -> str:
    """What comes of a change that a kernel answers so."""
    kernel = FakeKernel(*said)
    found = asyncio.run(change_pin(kernel, ["GPU-0"], seconds))
    assert not kernel.is_open
    kernel.context.term()
    return found


@pytest.mark.parametrize(("word", "expected"), [("done", "done"), ("loaded", "loaded"), ("late", "busy")])
def test_the_words_that_are_meant(word, expected):
    """As IPython shows a string; what comes before it for somebody else is passed by."""
    assert made_of(queue.Empty(), reply({}, parent={"msg_id": "other"}), told(repr(word))) == expected


@pytest.mark.parametrize(
    "said",
    [
        told("[" + "1," * 200_000 + "]"),
        told("(" * 100_000),
        told("'done' * 10**9"),
        told("'busy'"),
        told("done"),
        told(""),
        told(["'done'"]),
        told({"'done'": 1}),
        told(None),
        told("'done'", status="error"),
        told("'done'", status=["ok"]),
        told("'done'", data=["text/plain"]),
        reply({"user_expressions": []}),
        reply({"user_expressions": {"gpu": "ok"}}),
        reply({}),
        reply(None),
        ValueError("Invalid Signature"),
        KeyError("header"),
        RecursionError(),
    ],
)
def test_anything_else_has_failed(said):
    """Nothing is evaluated, and nothing becomes a fault of the server."""
    assert made_of(said) == "failed"


def test_who_talks_of_other_things_without_end_has_failed():
    """Messages that are always there would never let the server's loop go on."""
    others: list[Any] = [reply({}, parent=odd) for odd in ({}, [], "x", {"msg_id": 3})]
    assert made_of(*others, told("'done'")) == "done"
    assert made_of(*others * MOST_OTHERS, told("'done'")) == "failed"


def test_no_answer_is_a_busy_kernel():
    """In time."""
    assert made_of(seconds=0.05) == "busy"


def test_what_is_too_long_is_not_even_taken():
    """The socket drops who sends it; what is short arrives, and other sockets of the server are as they were."""

    async def story() -> None:
        context = zmq.asyncio.Context()
        kernel = context.socket(zmq.ROUTER)
        with silent._bounded(context):
            ours = context.socket(zmq.DEALER)
        another = context.socket(zmq.DEALER)
        try:
            assert another.getsockopt(zmq.MAXMSGSIZE) == -1
            ours.connect(f"tcp://127.0.0.1:{kernel.bind_to_random_port('tcp://127.0.0.1')}")
            await ours.send(b"")
            who, _ = await kernel.recv_multipart()
            await kernel.send_multipart([who, b"x"])
            assert await ours.recv() == b"x"
            monitor = ours.get_monitor_socket(zmq.EVENT_DISCONNECTED)
            await kernel.send_multipart([who, b"x" * (MOST_ANSWER_BYTES + 1)])
            await asyncio.wait_for(monitor.recv_multipart(), SECONDS)
            assert not await ours.poll(0)
            ours.disable_monitor()
            monitor.close(linger=0)
        finally:
            another.close()
            context.destroy(linger=0)

    asyncio.run(story())
