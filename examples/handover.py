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
        anna, ben = Agent("anna", Path(folder)), Agent("ben", Path(folder))
        with anna.store, ben.store:
            anna.work("Plan a trip to Chengdu.", "The trip goes to Chengdu.")
            bundle = anna.hand_over(1)

            print("Anna exports her task. Ben has not pinned her key, so it is held outside of his log:")
            print(ben.store.import_bundle(bundle))
            assert TASK not in ben.store.refs
            assert len(ben.store.log) == 0

            anna.trust(ben)
            ben.trust(anna)
            taken = ben.store.import_bundle(bundle)
            print("\nNow he has:", taken, sep="\n")
            assert ben.knows() == ["The trip goes to Chengdu."]

            ben.work("Find a hotel.", "The hotel is the Jinjiang.")
            returned = anna.store.import_bundle(ben.hand_over(1))
            assert [ref.how for ref in returned.refs] == ["fast-forward"]
            assert anna.store.refs[TASK] == ben.store.refs[TASK]
            assert anna.store.digest() == ben.store.digest()
            tell("Ben works and hands it back. Anna stood still: a fast-forward.", anna)

            anna.work("And the train?", "The train leaves at nine.")
            ben.work("And dinner?", "Dinner is hotpot.")
            head = anna.store.refs[TASK]
            returned = anna.store.import_bundle(ben.hand_over(2))
            assert [ref.how for ref in returned.refs] == ["merged"]
            assert len(returned.adopted) == 1
            assert anna.store.tree.parent(anna.store.refs[TASK]) == head
            assert anna.knows() == [
                "Dinner is hotpot.",
                "The hotel is the Jinjiang.",
                "The train leaves at nine.",
                "The trip goes to Chengdu.",
            ]
            tell("Both went on. What Ben learned is adopted on Anna's branch.", anna)

            again = anna.store.import_bundle(Path(folder) / "ben-2.bundle")
            assert (again.imported, dict(again.adopted)) == (0, {})
            ben.store.import_bundle(anna.hand_over(2))
            assert ben.knows() == anna.knows()
            tell(
                "Importing that again changes nothing. Anna's next bundle brings Ben what he lacks, nothing twice.", ben
            )


if __name__ == "__main__":
    main()
