"""What the API says of devices as they are: cards, who is on them, alerts, isolation, and what reads them."""

from __future__ import annotations

import msgspec

from jupyter_gpu.broker.alerts import Alert
from jupyter_gpu.broker.sights import Sights
from jupyter_gpu.model import (
    BrokerView,
    Card,
    Condition,
    DriverView,
    IsolationView,
    MarkedView,
    Policy,
    Reading,
    SeeCondition,
    SeeDevices,
    Status,
    Use,
    UseKind,
)
from tests.conftest import Places

from .api_ground import Served, an_api, play
from .ground import a_reservation, devices

CARD = Card(uuid="GPU-card", index=3, name="A100", memory_bytes=40 << 30)
MIG = msgspec.structs.replace(devices(1)[0], uuid="MIG-1", index=1000, card=CARD, slot=1)


async def status(broker: Served, name: str) -> Status:
    """The document for somebody."""
    return msgspec.json.decode((await broker.as_(name).get("/status")).content, type=Status)


def test_the_document_has_cards_alerts_and_the_badge(tmp_runtime: Places) -> None:
    """A GPU in MIG mode is no device; its readings are its own."""
    badge = IsolationView(enforced=True, by="landlock", detail="the probe could open no GPU that was not its own.")
    driver = DriverView(driver="580.95.05", nvml="13.580.95.05")

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            broker.loop.sights = Sights(cards=lambda: (CARD,), isolation=lambda: badge, driver=lambda: driver)
            broker.loop.world.readings["GPU-card"] = Reading(uuid="GPU-card", at=5.0, temperature_celsius=44)
            broker.loop.alerts.open("device:0", Alert(text="hot", device="GPU-0"))
            seen = await status(broker, "oper")
            assert [(it.uuid, it.index, it.temperature_celsius) for it in seen.cards] == [("GPU-card", 3, 44)]
            assert [it.uuid for it in seen.devices] == ["GPU-0"]
            assert [it.key for it in seen.alerts] == ["device:0"]
            assert seen.isolation == badge
            assert (await status(broker, "ada")).alerts == ()
            view = msgspec.json.decode((await broker.as_("ada").get("/broker")).content, type=BrokerView)
            assert (view.driver, view.isolation) == (driver, badge)

    play(story)


def test_a_mig_device_is_named_as_people_read_it(tmp_runtime: Places) -> None:
    """By its card and its number there; its index is nobody's name."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            await broker.loop.handle(SeeDevices(pool="local", devices=(*devices(1), MIG)))
            answer = await broker.as_("oper").post("/devices/3:1/cordon")
            assert (answer.json()["uuid"], answer.json()["number"]) == ("MIG-1", "3:1")
            assert (await broker.as_("oper").post("/devices/1000/cordon")).status_code == 404

    play(story)


def test_a_gpu_in_mig_mode_is_marked_with_all_its_mig_devices(tmp_runtime: Places) -> None:
    """By its number or its UUID; the answer has each as it stands now. Of one without MIG devices it says that."""
    other = msgspec.structs.replace(MIG, uuid="MIG-2", index=1001, slot=2)
    bare = Card(uuid="GPU-bare", index=4, name="A100")

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            broker.loop.sights = Sights(cards=lambda: (CARD, bare))
            await broker.loop.handle(SeeDevices(pool="local", devices=(*devices(1), MIG, other)))
            operator = broker.as_("oper")
            for name, verb in (("3", "cordon"), ("GPU-card", "drain"), ("3", "uncordon")):
                view = msgspec.json.decode((await operator.post(f"/devices/{name}/{verb}")).content, type=MarkedView)
                shown = [(it.number, it.cordoned) for it in (view, *view.others)]
                assert shown == [("3:1", verb != "uncordon"), ("3:2", verb != "uncordon")]
            none = await operator.post("/devices/4/cordon")
            assert (none.status_code, none.json()["code"]) == (409, "conflict")
            assert "has no MIG devices" in none.json()["message"]
            assert "others" not in (await operator.post("/devices/3:1/cordon")).json()

    play(story)


def test_the_answer_to_uncordon_says_what_still_keeps_the_device_from_work(tmp_runtime: Places) -> None:
    """An operator's word is no reading."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            seen = SeeCondition(device="GPU-0", condition=Condition.FOREIGN, detail="process 4711 is on it")
            await broker.loop.handle(seen)
            await broker.as_("oper").post("/devices/0/cordon")
            answer = (await broker.as_("oper").post("/devices/0/uncordon")).json()
            assert (answer["cordoned"], answer["condition"]) == (False, "foreign")
            assert answer["condition_detail"] == "process 4711 is on it"

    play(story)


def test_a_lost_gpu_is_forgotten_by_an_operator_alone(tmp_runtime: Places) -> None:
    """Only what is lost and nobody's; the answer is how it last stood, and a second time there is none."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, count=2) as broker:
            operator = broker.as_("oper")
            assert (await broker.as_("ada").delete("/devices/0")).status_code == 403
            there = await operator.delete("/devices/0")
            assert (there.status_code, there.json()["code"]) == (409, "conflict")
            assert "only a lost GPU" in there.json()["message"]
            await broker.loop.handle(SeeCondition(device="GPU-0", condition=Condition.LOST))
            gone = await operator.delete("/devices/0")
            assert (gone.status_code, gone.json()["uuid"], gone.json()["condition"]) == (200, "GPU-0", "lost")
            assert [it["uuid"] for it in (await operator.get("/devices")).json()["items"]] == ["GPU-1"]
            assert (await operator.delete("/devices/0")).status_code == 404

    play(story)


def test_a_number_that_a_lost_gpu_had_is_that_of_the_one_in_its_place(tmp_runtime: Places) -> None:
    """A card that was replaced: what is done to GPU 0 is done to the new one, and the lost one is forgotten."""
    new = msgspec.structs.replace(devices(1)[0], uuid="GPU-new")

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            operator = broker.as_("oper")
            await broker.loop.handle(SeeDevices(pool="local", devices=(new,)))
            assert (await operator.post("/devices/0/cordon")).json()["uuid"] == "GPU-new"
            assert (await operator.delete("/devices/0")).json()["uuid"] == "GPU-0"
            assert (await operator.delete("/devices/0")).status_code == 409
            other = msgspec.structs.replace(new, uuid="GPU-other", node="far")
            await broker.loop.handle(SeeDevices(pool="local", devices=(new, other)))
            both = await operator.post("/devices/0/cordon")
            assert (both.status_code, both.json()["hint"]) == (404, "Name one by its UUID: GPU-new, GPU-other.")

    play(story)


def test_what_is_asked_before_the_devices_are_known_is_taken_and_waits(tmp_runtime: Places) -> None:
    """It is not refused for want of a GPU while the driver is being opened (NVIDIA/nvidia-container-toolkit#1053)."""

    async def not_yet() -> bool:
        return False

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, count=0) as broker:
            ada, ask = broker.as_("ada"), {"kind": "reservation", "holder": {"kind": "kernel", "name": "k"}}
            assert (await ada.post("/workloads", json=ask)).json()["code"] == "limit-exceeded"
            broker.loop.sights = Sights(knows_devices=not_yet)
            taken = await ada.post("/workloads", json=ask)
            assert (taken.status_code, taken.json()["waiting"]) == (202, "engine")
            await broker.loop.handle(SeeDevices(pool="local", devices=devices(1)))
            assert (await ada.get("/workloads/1")).json()["devices"] == ["GPU-0"]

    play(story)


def test_events_name_the_devices_of_each_attempt(tmp_runtime: Places) -> None:
    """In the order in which the work counts them, also once it holds them no more."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, count=2) as broker:
            await broker.loop.handle(a_reservation("ada", devices=2))
            await broker.as_("ada").post("/workloads/1/release", json={})
            events = (await broker.as_("ada").get("/workloads/1/events")).json()["items"]
            named = {event["event"]: event.get("devices") for event in events}
            assert named == {"submitted": None, "granted": ["GPU-0", "GPU-1"], "released": None}

    play(story)


def test_who_is_on_a_device_is_told_as_far_as_a_caller_may_know(tmp_runtime: Places) -> None:
    """Where names are secret others see that somebody is there."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, policy=Policy(names_are_public=False)) as broker:
            broker.loop.world.uses["GPU-0"] = (Use(pid=4711, kind=UseKind.USER, user="grace", name="secret.py"),)
            for name, known in (("oper", ("grace", "secret.py")), ("ada", (None, ""))):
                (use,) = (await status(broker, name)).devices[0].uses
                assert (use.pid, use.foreign, (use.user, use.name)) == (4711, True, known)

    play(story)


def test_one_lost_card_does_not_keep_the_others_from_being_shown(tmp_runtime: Places) -> None:
    """The status answers, with the lost one marked and not to be had: rossumai/nvgpu#6."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, count=4) as broker:
            detail = "The GPU is lost: it has fallen off the bus."
            await broker.loop.handle(SeeCondition(device="GPU-2", condition=Condition.LOST, detail=detail))
            answer = await broker.as_("ada").get("/status")
            assert answer.status_code == 200
            shown = {it["uuid"]: it.get("condition") for it in answer.json()["devices"]}
            assert shown == {"GPU-0": None, "GPU-1": None, "GPU-2": "lost", "GPU-3": None}

    play(story)
