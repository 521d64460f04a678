"""The life of what an agent knows: replaced, faded, used again; the skills that a message calls up; a branch given up.

    pip install 'branchmem[skills]'
    python examples/lifecycle.py

The clock is given, so that a season passes in no time.  Each step says what it shows, and asserts it.
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import branchmem as bm
from branchmem import skills
from branchmem.recall import Hits
from branchmem.recall.decay import report
from branchmem.session import Session

MONDAY = datetime(2026, 1, 5, 9, tzinfo=UTC)
TUESDAY = MONDAY + timedelta(days=1)
SPRING = MONDAY + timedelta(days=90)

DOCKER = """\
---
description: Build, run and debug containers
glob_patterns: ["Dockerfile", "docker-compose.yml"]
trigger_keywords: [docker, containers]
importance: 0.8
---
Pin the base image, and do not run as root. Read `docker logs` before you guess.
"""
REVIEW = """\
---
name: review
description: Review a change and say what is wrong with it
---
Read the tests first, then the diff.
"""


def work(session: Session, asked: str, answer: str, learned: str, key: str, at: datetime) -> bm.Memory:
    """A turn of the agent: it is asked, answers, and remembers; what it knew of the key is replaced."""
    session.say("user", asked, created=at)
    with session.step(created=at) as step:
        step.write(answer)
        return step.remember_checked(learned, key=key, resolve="supersede", created=at).memory


def tell(what: str, *lines: object) -> None:
    """Print a sentence, and below it what it is about."""
    print(f"\n{what}")
    for line in lines:
        print(f"    {line}".rstrip())


def found(session: Session, query: str, now: datetime) -> Hits:
    """What a search at the head of the conversation finds."""
    return session.view().search(query, now=now)


def texts(hits: Hits) -> list[str]:
    """What the hits say, best first."""
    return [hit.text for hit in hits]


def said(store: bm.Store, id: str) -> str:
    """A message or memory by what it says, as people remember it."""
    event = store.log.get(id)
    assert isinstance(event, bm.Message | bm.Memory)
    return f"“{event.text}”"


def replaced(store: bm.Store, session: Session) -> bm.Memory:
    """A choice, and another one that replaces it."""
    old = work(session, "Set up the shop.", "Done.", "The database is PostgreSQL 14.", "database", MONDAY)
    new = work(session, "Upgrade.", "Upgraded to 16.", "The database is PostgreSQL 16.", "database", TUESDAY)
    hits = found(session, "database", TUESDAY)
    tell("The agent upgraded the database. A search for it finds one version, not two:", *texts(hits))
    assert texts(hits) == [new.text]

    verdict = session.view().explain(old.id)
    tell("Why not the other one?", *verdict.sentences(lambda id: said(store, id)))
    assert not verdict.visible
    return new


def faded(store: bm.Store, session: Session, database: bm.Memory) -> None:
    """What nobody uses fades, and what is used is back."""
    hits = found(session, "database", SPRING)
    tell("Nobody asks for three months. What is found in spring:", *texts(hits) or ["nothing"])
    tell("It has faded:", report(store, session.view(), now=SPRING))
    assert (texts(hits), hits.faded) == ([], 1)

    again = session.view().search("database", now=SPRING, include_faded=True)
    tell("It is not gone: it can be asked for by its id, or with what has faded.", *texts(again))
    assert texts(again) == [session.view()[database.id].text] == [database.text]

    store.used([database.id], at=SPRING)
    hits = found(session, "database", SPRING)
    tell("Once it is used, it is found as before:", *texts(hits))
    assert texts(hits) == [database.text]


def called_up(folder: Path) -> skills.Library:
    """Skills, by what is said and by what is worked on."""
    (folder / "docker.md").write_text(DOCKER)
    (folder / "review").mkdir()
    (folder / "review" / "SKILL.md").write_text(REVIEW)
    library = skills.load(folder)
    assert not library.problems
    for message, paths in (
        ("Why do the containers not start?", []),
        ("What is this file for?", ["services/shop/Dockerfile"]),
    ):
        activated = library.activate(message, paths)
        tell(f"{message} {' '.join(paths)}".rstrip(), *activated)
        assert [each.name for each in activated] == ["docker"]
    assert activated[0].by == "glob"
    return library


def recalled(session: Session, library: skills.Library, database: bm.Memory) -> None:
    """Both together, in a prompt."""
    prompt = session.recall("Which database do the containers need?", budget=100, skills=library, now=SPRING)
    tell(f"What goes into the prompt, {prompt.tokens} of {prompt.budget} tokens:", *prompt.text.splitlines())
    assert prompt.ids == (database.id,)
    assert [each.name for each in prompt.skills] == ["docker"]
    assert prompt.tokens <= prompt.budget


def given_up(store: bm.Store, session: Session) -> None:
    """A branch that the user leaves."""
    asked = session.say("user", "Try MongoDB for the carts.", created=SPRING)
    with session.step(created=SPRING) as step:
        step.write("The carts are in MongoDB now.")
        step.remember("The carts are kept in MongoDB.", created=SPRING)
    tried = session.head
    assert texts(found(session, "MongoDB", SPRING)) == ["The carts are kept in MongoDB."]
    tell("The user lets it try MongoDB, and a search finds that:", *texts(found(session, "MongoDB", SPRING)))

    session.edit(asked.id, "Keep the carts where the orders are.", created=SPRING)
    hits = session.view().search("MongoDB", now=SPRING, include_faded=True)
    tell("Then the user edits that message. What is found now:", *texts(hits) or ["nothing"])
    assert texts(hits) == []

    why = store.why("MongoDB", at=session.ref)
    ((memory, verdict),) = why.memories
    tell("Why?", memory.text, *(f"hidden: {each}" for each in verdict.sentences(lambda id: said(store, id))))
    assert not verdict.visible
    assert why.messages == ()

    session.switch(tried)
    tell("Back on the branch that was left:", *texts(found(session, "MongoDB", SPRING)))
    assert texts(found(session, "MongoDB", SPRING)) == [memory.text]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, bm.open_temporary() as store:
        print("An agent builds a shop, and remembers what it decided.")
        session = store.session("shop")
        database = replaced(store, session)
        faded(store, session, database)
        library = called_up(Path(folder))
        recalled(session, library, database)
        given_up(store, session)


if __name__ == "__main__":
    main()
