"""Who calls, by the word of a hub: tokens, scopes, groups; what a hub that is away means; and nobody else."""

from tests.conftest import Places

from .fake_hub import RESEARCHER
from .ground import a_service, play


def test_a_token_of_the_hub_says_who_calls(tmp_runtime: Places) -> None:
    """In both spellings, below the prefix and without it, directly and over the socket; groups come with it."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir) as it:
            ana = it.hub.add("ana", *RESEARCHER, groups=("vision", "course-a"))
            for scheme in ("token", "Bearer"):
                for base in (f"{it.root}{it.prefix}/api/v1", f"{it.root}/api/v1"):
                    client = it.client(base, headers={"Authorization": f"{scheme} {ana}"})
                    assert (await client.get("/status")).json()["caller"] == "ana"
            assert (await it.client().get("/status")).status_code == 401

    play(story)
