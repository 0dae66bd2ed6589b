import asyncio
from tests.hub.spawn_ground import *
from tests.hub.ground import play


def test_x(tmp_runtime):
    async def story():
        async with a_hall(tmp_runtime.runtime_dir) as (hall, serving):
            user = hall.user("ana")
            await user.spawn("", options={"gpu_profile": "one"})
            print(hall.environment())
            print(await reservations(serving, "ana"))
            print(user.spawners[""].orm_spawner.state)
            await user.stop("")
            print(await reservations(serving, "ana", ended=True))
            await asyncio.sleep(0)

    play(story)
