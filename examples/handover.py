"""One agent hands its memory to another and takes it back: signed, as one file.

    pip install 'branchmem[bundles]'
    python examples/handover.py

Each step says what it shows, and asserts it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import branchmem as bm
from branchmem.bundle import Key, make_key

TASK = "task"


class Agent:
    """A store of its own, and a key to sign with."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.key: Key = make_key(folder / f"{name}.key")
        self.store = bm.open(folder / f"{name}.bmem")

    def trust(self, other: Agent) -> None:
        """Let what the other one signs join the log as it is."""
        self.store.pins.pin(other.key.public, other.name)

    def work(self, said: str, learned: str) -> None:
        """One turn on the task, and what is remembered of it."""
        session = self.store.session(TASK)
        session.say("user", said)
        with session.step() as step:
            step.write("Done.")
            step.remember(learned)

    def hand_over(self, number: int) -> Path:
        """All that the task needs, in a file for whoever may have it."""
        path = self.folder / f"{self.name}-{number}.bundle"
        self.store.export_bundle(path, key=self.key, refs=[TASK])
        return path

    def knows(self) -> list[str]:
        """What may be remembered at the task."""
        return sorted(memory.text for memory in self.store.at_ref(TASK).memories())


def tell(what: str, agent: Agent) -> None:
    """Print what an agent knows."""
    print(f"\n{what}\n  {agent.name} knows:", *agent.knows(), sep="\n    ")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        planner, researcher = Agent("planner", Path(folder)), Agent("researcher", Path(folder))
        with planner.store, researcher.store:
            planner.work("Plan a trip to Chengdu.", "The trip goes to Chengdu.")
            bundle = planner.hand_over(1)

            print(
                "The planner exports its task. The researcher has not pinned its key, so it is held outside of the log:"
            )
            print(researcher.store.import_bundle(bundle))
            assert TASK not in researcher.store.refs
            assert len(researcher.store.log) == 0

            planner.trust(researcher)
            researcher.trust(planner)
            taken = researcher.store.import_bundle(bundle)
            print("\nNow each has pinned the key of the other:", taken, sep="\n")
            assert researcher.knows() == ["The trip goes to Chengdu."]

            researcher.work("Find a hotel.", "The hotel is the Jinjiang.")
            returned = planner.store.import_bundle(researcher.hand_over(1))
            assert [ref.how for ref in returned.refs] == ["fast-forward"]
            assert planner.store.refs[TASK] == researcher.store.refs[TASK]
            assert planner.store.digest() == researcher.store.digest()
            tell("The researcher works and hands it back. The planner stood still: a fast-forward.", planner)

            planner.work("And the train?", "The train leaves at nine.")
            researcher.work("And dinner?", "Dinner is hotpot.")
            head = planner.store.refs[TASK]
            returned = planner.store.import_bundle(researcher.hand_over(2))
            assert [ref.how for ref in returned.refs] == ["merged"]
            assert len(returned.adopted) == 1
            assert planner.store.tree.parent(planner.store.refs[TASK]) == head
            assert planner.knows() == [
                "Dinner is hotpot.",
                "The hotel is the Jinjiang.",
                "The train leaves at nine.",
                "The trip goes to Chengdu.",
            ]
            tell("Both went on. What the researcher learned is adopted on the planner's branch.", planner)

            again = planner.store.import_bundle(Path(folder) / "researcher-2.bundle")
            assert (again.imported, dict(again.adopted)) == (0, {})
            researcher.store.import_bundle(planner.hand_over(2))
            assert researcher.knows() == planner.knows()
            tell(
                "Importing it again changes nothing. The next bundle brings what is lacking, nothing twice.",
                researcher,
            )


if __name__ == "__main__":
    main()
