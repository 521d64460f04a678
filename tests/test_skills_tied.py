"""Skills as memories of a branch: visible by the rule, written once, and never brought back against the user's word."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import branchmem as bm
import pytest
from branchmem import skills
from branchmem.errors import StepEnded
from branchmem.session import Session
from branchmem.skills import Library, Skill, Tied, remember, visible

SAMPLES = Path(__file__).parent / "samples" / "skills"

DOCKER = Skill("docker", "Build containers", "Pin the base image.", trigger_keywords=("docker",), importance=0.8)
NEWER = replace(DOCKER, body="Pin the base image by its digest.")
REVIEW = Skill("review", "Review a change", tools_allowed=("shell",), metadata={"author": "example", "since": [1, 2]})


def of(*given: Skill) -> Library:
    return Library(given)


def shown(session: Session) -> dict[str, str]:
    return {skill.name: skill.body for skill in visible(session.view())}


def written(tied: Tied) -> tuple[list[str], list[str]]:
    return [str(memory.key) for memory in tied.added], [str(memory.key) for memory in tied.changed]


def reload_at(session: Session, folder: Path) -> Tied:
    return remember(session, skills.load(folder))


@pytest.fixture
def forked() -> Iterator[tuple[Session, Session]]:
    """A session, and one on another branch of its conversation."""
    with bm.open_temporary() as store:
        session = store.session("chat")
        fork = session.fork("other")
        session.say("user", "one way")
        fork.say("user", "another way")
        yield session, fork


def test_a_skill_is_a_memory_and_the_same_skill_again(session: Session) -> None:
    tied = remember(session, of(DOCKER, REVIEW))

    assert written(tied) == (["docker", "review"], [])
    docker, review = (session.view()[memory.id] for memory in tied.memories)
    assert (docker.kind, docker.key, docker.importance) == (skills.KIND, "docker", 0.8)
    assert docker.text == "Build containers\n\nPin the base image."
    assert docker.sources == (session.head,)
    assert dict(docker.meta) == {"description": "Build containers", "trigger_keywords": ("docker",)}
    assert visible(session.view()) == of(DOCKER, REVIEW)
    assert [skill.memory for skill in visible(session.view())] == [docker.id, review.id]


def test_the_samples_survive_the_log(session: Session) -> None:
    library = skills.load(SAMPLES)

    remember(session, library)

    assert visible(session.view()) == library
    assert [one.name for one in visible(session.view()).activate("用docker部署")] == ["docker"]


def test_tying_again_writes_nothing(session: Session) -> None:
    remember(session, of(DOCKER, REVIEW))
    before = session.store.seq

    tied = remember(session, of(REVIEW, DOCKER))

    assert tied == Tied(unchanged=("docker", "review"))
    assert session.store.seq == before
    assert str(tied) == "unchanged: docker, review"


def test_a_new_version_supersedes_the_old_one(session: Session) -> None:
    (old,) = remember(session, of(DOCKER)).added

    tied = remember(session, of(NEWER))

    assert written(tied) == ([], ["docker"])
    assert tied.changed[0].supersedes == (old.id,)
    assert shown(session) == {"docker": NEWER.body}
    assert remember(session, of(NEWER)).unchanged == ("docker",)


@pytest.mark.parametrize(
    "other",
    [
        replace(DOCKER, importance=0.5),
        replace(DOCKER, trigger_keywords=("podman",)),
        replace(DOCKER, description="Run containers"),
        replace(DOCKER, name="Docker"),
    ],
    ids=["importance", "front matter", "description", "case of the name"],
)
def test_whatever_of_a_skill_changes_is_a_new_version(session: Session, other: Skill) -> None:
    remember(session, of(DOCKER))

    assert written(remember(session, of(other))) == ([], [other.name])
    assert visible(session.view()) == of(other)


def test_a_version_can_come_back(session: Session) -> None:
    for skill in (DOCKER, NEWER, DOCKER):
        remember(session, of(skill))

    assert shown(session) == {"docker": DOCKER.body}
    assert remember(session, of(DOCKER)).unchanged == ("docker",)


def test_what_is_no_longer_in_the_library_stays_and_is_named(session: Session) -> None:
    remember(session, of(DOCKER, REVIEW))

    tied = remember(session, of(REVIEW))

    assert (tied.gone, tied.unchanged) == (("docker",), ("review",))
    assert sorted(shown(session)) == ["docker", "review"]


def test_a_folder_is_tied_as_its_files_are_now(session: Session, tmp_path: Path) -> None:
    def write(name: str, said: str) -> None:
        (tmp_path / f"{name}.md").write_text(f"---\ndescription: {said}\n---\n")

    write("a", "one")
    write("b", "one")
    assert written(reload_at(session, tmp_path)) == (["a", "b"], [])
    write("a", "two")
    (tmp_path / "b.md").unlink()
    write("c", "one")

    tied = reload_at(session, tmp_path)

    assert (written(tied), tied.gone) == ((["c"], ["a"]), ("b",))
    assert reload_at(session, tmp_path) == Tied(unchanged=("a", "c"), gone=("b",))


def test_a_skill_is_visible_on_its_branch_alone(forked: tuple[Session, Session]) -> None:
    session, fork = forked

    remember(session, of(DOCKER))

    assert shown(session) == {"docker": DOCKER.body}
    assert shown(fork) == {}
    assert written(remember(fork, of(NEWER))) == (["docker"], [])
    assert shown(session) == {"docker": DOCKER.body}


def test_a_new_version_on_a_branch_leaves_the_others_as_they_are(session: Session) -> None:
    remember(session, of(DOCKER))
    fork = session.fork("other")
    fork.say("user", "another way")

    remember(fork, of(NEWER))

    assert (shown(session), shown(fork)) == ({"docker": DOCKER.body}, {"docker": NEWER.body})


def test_sources_say_where_a_skill_is_visible(session: Session) -> None:
    root = session.store.tree.path(session.head)[0]

    (memory,) = remember(session, of(DOCKER), sources=[root]).added

    assert memory.id in session.store.at(root)
    assert remember(session, of(DOCKER)).unchanged == ("docker",)


def test_what_was_taken_back_is_not_written_again(session: Session) -> None:
    (memory,) = remember(session, of(DOCKER)).added
    retraction = session.store.retract([memory.id], at=session.head, scope="branch").events[0].id
    before = session.store.seq

    assert remember(session, of(DOCKER)) == Tied(taken_back=("docker",))
    assert remember(session, of(NEWER)).taken_back == ("docker",)
    assert (shown(session), session.store.seq) == ({}, before)

    session.store.restore(retraction, at=session.head, scope="branch")
    assert remember(session, of(DOCKER)).unchanged == ("docker",)


def test_what_was_taken_back_elsewhere_is_written_here(forked: tuple[Session, Session]) -> None:
    session, fork = forked
    (memory,) = remember(session, of(DOCKER)).added
    session.store.retract([memory.id], at=session.head, scope="branch")

    assert written(remember(fork, of(DOCKER))) == (["docker"], [])


def test_a_version_that_was_reverted_stays_so_and_a_newer_one_is_written(session: Session) -> None:
    remember(session, of(DOCKER))
    (bad,) = remember(session, of(NEWER)).changed
    session.store.retract([bad.id], at=session.head, scope="branch", revert=True)

    assert remember(session, of(NEWER)).taken_back == ("docker",)
    assert shown(session) == {"docker": DOCKER.body}
    assert written(remember(session, of(replace(DOCKER, body="Third.")))) == ([], ["docker"])


def test_what_a_standing_retraction_of_its_name_covers_is_named_with_the_reason(session: Session) -> None:
    session.store.retract(keys=["docker"], at=session.head, scope="branch", standing=True)
    session.say("user", "go on")

    tied = remember(session, of(DOCKER))

    assert list(tied.born_hidden) == ["docker"]
    assert "retract" in str(tied)
    assert remember(session, of(DOCKER)) == Tied(taken_back=("docker",))


def test_an_erased_skill_is_none(session: Session) -> None:
    (memory,) = remember(session, of(DOCKER)).added

    session.store.erase([memory.id])

    assert shown(session) == {}


@pytest.mark.parametrize("inside", [True, False], ids=["of the session", "the step itself"])
def test_a_step_remembers_skills_with_its_answer(session: Session, inside: bool) -> None:
    with session.step() as step:
        tied = remember(session if inside else step, of(DOCKER))
        assert remember(step, of(DOCKER)).unchanged == ("docker",)
        assert visible(step.view()) == of(DOCKER)
        changed = remember(step, of(NEWER))

    assert tied.added[0].sources == (step.id,)
    assert written(changed) == ([], ["docker"])
    assert shown(session) == {"docker": NEWER.body}


def test_a_step_refuses_a_version_that_it_replaced_itself(session: Session) -> None:
    with session.step() as step:
        remember(step, of(DOCKER))
        remember(step, of(NEWER))
        with pytest.raises(bm.EventConflict):
            remember(step, of(DOCKER))

    assert shown(session) == {"docker": NEWER.body}


def test_what_a_rejected_step_remembered_is_gone_with_it(session: Session) -> None:
    with session.step():
        remember(session, of(DOCKER))
    session.regenerate()

    assert shown(session) == {}


def test_a_step_that_is_over_takes_no_skills(session: Session) -> None:
    with session.step() as step:
        pass

    with pytest.raises(StepEnded):
        remember(step, of(DOCKER))


def test_where_a_step_was_left_open_and_has_ended_a_session_is_told_what_skills_come_from(session: Session) -> None:
    """A stream that is closed in another context leaves its step in that of its reader."""

    def stream() -> Generator[None]:
        with session.step():
            yield

    def read() -> tuple[list[str], list[str]]:
        parts = stream()
        next(parts)
        contextvars.copy_context().run(parts.close)
        with pytest.raises(StepEnded):
            remember(session, of(DOCKER))
        assert shown(session) == {}
        return written(remember(session, of(DOCKER), sources=[session.head]))

    assert contextvars.copy_context().run(read) == (["docker"], [])


def test_a_store_takes_skills_with_their_sources(session: Session) -> None:
    root = session.store.tree.path(session.head)[0]

    assert written(remember(session.store, of(DOCKER), sources=[root, session.head])) == (["docker"], [])
    assert shown(session) == {"docker": DOCKER.body}
    assert remember(session.store, of(DOCKER), sources=[session.head]).unchanged == ("docker",)


@pytest.mark.parametrize(
    ("sources", "error", "said"),
    [
        (lambda session, fork: [fork.head], bm.InvalidEvent, "is not on the path"),
        (lambda session, fork: ["nowhere"], bm.UnknownEvent, "nowhere"),
        (lambda session, fork: "u1", bm.InvalidEvent, "sources is a list"),
    ],
    ids=["another branch", "unknown", "no list"],
)
def test_sources_that_would_hide_a_skill_are_refused(
    forked: tuple[Session, Session],
    sources: Callable[[Session, Session], list[str]],
    error: type[bm.Error],
    said: str,
) -> None:
    session, fork = forked
    before = session.store.seq

    with pytest.raises(error, match=said):
        remember(session, of(DOCKER), sources=sources(session, fork))
    with pytest.raises(error, match=said), session.step() as step:
        remember(step, of(DOCKER), sources=sources(session, fork))
    assert session.store.seq == before


def test_a_store_refuses_skills_without_a_place() -> None:
    with bm.open_temporary() as store:
        store.append([bm.Message("old", bm.LEGACY), bm.Message("lost", "missing"), bm.Message("new", "old")])

        with pytest.raises(bm.InvalidEvent, match="name them"):
            remember(store, of(DOCKER))
        with pytest.raises(bm.InvalidEvent, match="legacy"):
            remember(store, of(DOCKER), sources=["old"])
        with pytest.raises(bm.BadAnchor):
            remember(store, of(DOCKER), sources=["lost"])
        assert store.seq == 3
        assert len(remember(store, of(DOCKER), sources=["new"]).added) == 1


def test_many_who_tie_one_library_write_it_once(session: Session) -> None:
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda _: remember(session, of(DOCKER, REVIEW)), range(8)))

    assert sum(len(tied.added) for tied in done) == 2
    assert len(session.view().memories(kind=skills.KIND)) == 2


def test_of_rivals_the_last_in_path_order_is_the_skill_and_tying_settles_it(session: Session) -> None:
    root = session.store.tree.path(session.head)[0]
    session.store.append(
        [
            bm.Memory("deep", "Deep", sources=[session.head], kind=skills.KIND, key="docker"),
            bm.Memory("high", "High", sources=[root], kind=skills.KIND, key="docker"),
        ]
    )

    library = visible(session.view())

    assert [skill.description for skill in library] == ["Deep"]
    assert [(one.path, one.why) for one in library.problems] == [("high", "name: docker is that of deep, said later")]
    assert remember(session, of(DOCKER)).changed[0].supersedes == ("deep", "high")
    assert visible(session.view()) == of(DOCKER)


def test_a_memory_that_is_no_sound_skill_is_a_problem_of_the_library(session: Session) -> None:
    kind, sources = skills.KIND, [session.head]
    session.store.append(
        [
            bm.Memory("a", "Deploy with care\n\nAsk first.", sources=sources, kind=kind, key="deploy"),
            bm.Memory("b", "No name", sources=sources, kind=kind),
            bm.Memory("c", "Wrong", sources=sources, kind=kind, key="c", meta={"tags": "text"}),
            bm.Memory("d", "Wrong", sources=sources, kind=kind, key="d", meta={"description": "Other"}),
            bm.Memory("e", "Right", sources=sources, kind=kind, key="e", meta={"path": "/etc", "of": [1]}),
        ]
    )

    library = visible(session.view())

    assert library.skills == (Skill("deploy", "Deploy with care", "Ask first."), Skill("e", "Right"))
    assert [(one.path, one.why.partition(":")[0]) for one in library.problems] == [
        ("b", "name"),
        ("c", "tags"),
        ("d", "text"),
    ]
    assert [skill.path for skill in library] == [None, None]


def test_a_receipt_is_json_and_lines(session: Session) -> None:
    (old,) = remember(session, of(DOCKER)).added
    tied = remember(session, of(NEWER, REVIEW))

    assert tied.to_dict() == {
        "added": {"review": tied.added[0].id},
        "changed": {"docker": tied.changed[0].id},
        "unchanged": [],
        "taken_back": [],
        "gone": [],
        "born_hidden": {},
    }
    assert str(tied) == "added: review\nchanged: docker"
    assert str(Tied()) == "no skills"
    assert old.id not in session.view()
