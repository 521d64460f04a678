"""Several agents on forks of one store: none sees what another tries, and the lead adopts what each found, once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import branchmem as bm
import pytest
from branchmem.agent import Agent, Swarm
from branchmem.chat import Reply
from branchmem.errors import StepOpen, UnknownRef
from branchmem.errors.agent import ForkAstray, MemberFailed
from branchmem.session import Session
from completions import Scripted, calling
from figures import Figure

TOPICS = ("hotels", "trains", "food")


@pytest.fixture
def lead() -> Iterator[Session]:
    with bm.open_temporary() as store:
        session = store.session("trip")
        user = session.say("user", "Plan a trip.")
        session.remember("The trip goes to Chengdu.", sources=[user])
        yield session


def learn(what: str) -> str:
    """Note what was found."""
    bm.current_step().remember(what)
    return "noted"


def researcher(topic: str) -> Scripted:
    return Scripted(Reply("", (calling("learn", f'{{"what": "about {topic}"}}'),)), f"Found {topic}.")


def research(topic: str, session: Session) -> str:
    """What a member does, in whatever process."""
    if topic == "broken":
        raise OSError("no network")
    seen = [memory.text for memory in session.view().memories()]
    assert seen == ["The trip goes to Chengdu."]
    return str(Agent(session, researcher(topic), tools=[learn]).send(f"Look for {topic}"))


async def aresearch(topic: str, session: Session) -> str:
    await asyncio.sleep(0)
    return await asyncio.to_thread(research, topic, session)


def texts(session: Session) -> Counter[str]:
    return Counter(memory.text for memory in session.view().memories())


EXPECTED = Counter(["The trip goes to Chengdu.", *(f"about {topic}" for topic in TOPICS)])


def test_tasks_work_on_forks_and_the_lead_adopts_each_finding_once(lead: Session) -> None:
    swarm = Swarm(lead)
    done = asyncio.run(swarm.run({topic: partial(aresearch, topic) for topic in TOPICS}))
    assert {name: finding.result() for name, finding in done.items()} == {t: f"Found {t}." for t in TOPICS}
    assert texts(lead) == EXPECTED
    assert all(finding.adopted is not None and len(finding.adopted.adopted) == 1 for finding in done.values())
    assert "Look for" not in str([lead.store.log.get(id) for id in lead.store.tree.path(lead.head)])
    for topic in TOPICS:
        assert texts(swarm.member(topic)) == Counter(["The trip goes to Chengdu.", f"about {topic}"])
        assert swarm.adopt(topic).message is None
    assert texts(lead) == EXPECTED


@pytest.mark.soak
def test_processes_work_on_forks_and_the_lead_adopts_each_finding_once(tmp_path: Path, figure: Figure) -> None:
    with bm.open(tmp_path / "trip.bmem") as store:
        session = store.session("trip")
        session.remember("The trip goes to Chengdu.", sources=[session.say("user", "Plan a trip.")])
        work = {topic: partial(research, topic) for topic in (*TOPICS, "broken")}
        done = Swarm(session).run_processes(work, processes=figure(1, 4))
        assert [done[topic].value for topic in TOPICS] == [f"Found {topic}." for topic in TOPICS]
        with pytest.raises(MemberFailed, match="broken failed: OSError: no network") as failed:
            done["broken"].result()
        assert isinstance(failed.value.__cause__, OSError)
        assert texts(session) == EXPECTED


def test_who_fails_keeps_nobody_from_it_and_its_findings_are_not_adopted(lead: Session) -> None:
    async def fails(session: Session) -> str:
        await aresearch("food", session)
        raise OSError("late")

    swarm = Swarm(lead)
    work: dict[str, Callable[[Session], Awaitable[str]]] = {"hotels": partial(aresearch, "hotels"), "food": fails}
    done = asyncio.run(swarm.run(work))
    assert (done["food"].adopted, done["food"].value) == (None, None)
    assert texts(lead) == Counter(["The trip goes to Chengdu.", "about hotels"])
    swarm.adopt("food")
    assert texts(lead)["about food"] == 1


def test_what_a_member_rejected_is_no_finding(lead: Session) -> None:
    swarm = Swarm(lead)
    agent = Agent(swarm.member("hotels"), Scripted(*researcher("hotels").told, "Nothing."), tools=[learn])
    agent.send("Look")
    agent.regenerate()
    assert swarm.found("hotels") == ()
    assert swarm.adopt("hotels").message is None


def test_a_lead_that_is_in_a_step_adopts_nothing(lead: Session) -> None:
    swarm = Swarm(lead)
    swarm.member("hotels")
    with lead.step() as step, pytest.raises(StepOpen):
        swarm.adopt("hotels")
    with lead.step() as step:
        step.write("Done.")
        with pytest.raises(StepOpen):
            swarm.run_processes({})
        with pytest.raises(StepOpen):
            asyncio.run(swarm.run({}))


def test_a_member_that_waited_for_what_was_cancelled_has_failed_and_nobody_else(lead: Session) -> None:
    async def waits(session: Session) -> str:
        task = asyncio.ensure_future(asyncio.sleep(60))
        task.cancel()
        await task
        return "never"

    work: dict[str, Callable[[Session], Awaitable[str]]] = {"waits": waits, "food": partial(aresearch, "food")}
    done = asyncio.run(Swarm(lead).run(work))
    assert isinstance(done["waits"].error, asyncio.CancelledError)
    assert done["food"].result() == "Found food."
    assert texts(lead)["about food"] == 1


def test_what_cannot_be_adopted_keeps_nobody_from_it(lead: Session) -> None:
    async def leaves(session: Session) -> str:
        session.store.refs.delete(session.ref)
        return "gone"

    work: dict[str, Callable[[Session], Awaitable[str]]] = {"leaves": leaves, "food": partial(aresearch, "food")}
    done = asyncio.run(Swarm(lead).run(work))
    assert isinstance(done["leaves"].error, UnknownRef)
    assert texts(lead)["about food"] == 1


def test_a_lead_that_went_to_another_branch_takes_nothing_over(lead: Session) -> None:
    asked = lead.store.tree.path(lead.head)[-1]

    async def edits(session: Session) -> str:
        lead.edit(asked, "Plan a trip to the sea.")
        return await aresearch("hotels", session)

    swarm = Swarm(lead)
    done = asyncio.run(swarm.run({"hotels": edits}))
    assert isinstance(done["hotels"].error, ForkAstray)
    with pytest.raises(ForkAstray, match="give the member another name"):
        asyncio.run(swarm.run({"hotels": edits}))
    with pytest.raises(ForkAstray):
        swarm.adopt("hotels")
    assert texts(lead) == Counter()
    lead.switch(asked)
    swarm.adopt("hotels")
    assert texts(lead) == Counter(["The trip goes to Chengdu.", "about hotels"])


def test_members_work_anew_each_turn_and_nothing_of_a_turn_that_was_edited_is_taken_over(lead: Session) -> None:
    swarm = Swarm(lead)

    async def idle(session: Session) -> str:
        return "nothing yet"

    async def finds(topic: str, session: Session) -> str:
        with session.step() as step:
            step.remember(f"about {topic}")
        return topic

    asyncio.run(swarm.run({"hotels": idle}))
    places = []
    for topic in ("hotels", "inns"):
        lead.say("user", f"Now {topic}.")
        places.append(lead.head)
        done = asyncio.run(swarm.run({"hotels": partial(finds, topic)}))
        assert done["hotels"].error is None
    found = texts(lead)
    assert found["about hotels"] == found["about inns"] == 1

    left = lead.head
    lead.edit(places[1], "Now tents.")
    edited = texts(lead)
    for refused in (partial(swarm.adopt, "hotels"), partial(asyncio.run, swarm.run({"hotels": idle}))):
        with pytest.raises(ForkAstray, match=f"went on at {places[1]}"):
            refused()
    assert texts(lead) == edited
    assert edited["about inns"] == 0
    lead.switch(left)
    asyncio.run(swarm.run({"hotels": idle}))
    assert texts(lead) == found
