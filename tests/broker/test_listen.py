"""Where the broker is found: at its socket, for whom it is meant, and again when the path has vanished."""

import asyncio
import stat
from pathlib import Path

import pytest
from tornado.httpclient import AsyncHTTPClient, HTTPResponse
from tornado.netutil import Resolver
from tornado.simple_httpclient import SimpleAsyncHTTPClient
from tornado.web import Application, RequestHandler

from jupyter_gpu.broker.listen import Doors
from jupyter_gpu.errors import Conflict


class Here(RequestHandler):
    """Somebody is at home."""

    def get(self):
        self.finish("here")


class _Unix(Resolver):
    """Every name is one socket."""

    def initialize(self, path: str) -> None:
        self.path = path

    async def resolve(self, *_, **__):
        import socket

        return [(socket.AF_UNIX, self.path)]


def doors(path: Path, **words) -> Doors:
    """Doors of an application that says `here`."""
    return Doors(
        Application([("/", Here)]),
        socket_path=path,
        make_folder=lambda: path.parent.mkdir(exist_ok=True, mode=0o700),
        **{"for_everybody": False, **words},
    )


async def knock(path: Path) -> bytes:
    """Ask who is there."""
    client: AsyncHTTPClient = SimpleAsyncHTTPClient(force_instance=True, resolver=_Unix(path=str(path)))
    answer: HTTPResponse = await client.fetch("http://broker/")
    client.close()
    return answer.body


def test_a_vanished_socket_is_set_anew_with_its_folder(tmp_runtime):
    """The runtime folder goes with a user's last login while jobs go on; the next face finds the broker."""
    path = tmp_runtime.runtime_dir / "sub" / "s"

    async def story() -> None:
        here = doors(path)
        here.open()
        assert await knock(path) == b"here"
        assert here.look() is False
        path.unlink()
        path.parent.rmdir()
        assert here.look() is True
        assert await knock(path) == b"here"
        here.close()
        assert not path.exists()

    asyncio.run(story())


@pytest.mark.parametrize(("for_everybody", "mode"), [(False, 0o600), (True, 0o666)])
def test_the_socket_is_open_to_whom_it_is_meant_for(tmp_runtime, for_everybody, mode):
    """A user's own socket is theirs alone; the machine's is everybody's, and the kernel says who calls."""

    async def story() -> None:
        here = doors(tmp_runtime.runtime_dir / "s", for_everybody=for_everybody)
        here.open()
        assert stat.S_IMODE((tmp_runtime.runtime_dir / "s").stat().st_mode) == mode
        here.close()

    asyncio.run(story())


@pytest.mark.parametrize("tcp", ["127.0.0.1:notaport", "127.0.0.1:99999", "nowhere.invalid:1"])
def test_a_place_that_cannot_be_listened_at_is_named(tmp_runtime, tcp):
    """The refusal names the place and the setting."""

    async def story() -> None:
        with pytest.raises(Conflict, match=tcp.partition(":")[2]) as refused:
            doors(tmp_runtime.runtime_dir / "s", tcp=tcp).open()
        assert "GpuBroker.listen" in (refused.value.hint or "")

    asyncio.run(story())
