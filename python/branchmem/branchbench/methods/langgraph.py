"""LangGraph's long-term memory: facts as items of a `BaseStore`, found by its semantic search.

Its one rule: the store is the user's and not the branch's, since a store is shared by all threads, and a fork is the
same thread.  It is used as LangMem's `manage_memory` uses it: a new fact is a put, what is known of the same subject is
put again under its key, what the user takes back is a delete.  How that stands to the documentation is told in
bench/branchbench/METHODS.md.

What it leaves out: agents that decide by themselves what to write; checkpoints, which hold no derived memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from branchmem.branchbench.methods.method import Method, Tools
from branchmem.branchbench.methods.plain_store import taken_back
from branchmem.events import Memory, Retraction
from branchmem.extra import extra

if TYPE_CHECKING:
    from langgraph.store.memory import InMemoryStore

#: How many items a search asks for; LangGraph's own default is 10, which would leave some of the budget unused.
LIMIT: Final = 50

_NAMESPACE: Final = ("user", "memories")


class LangGraphStore(Method):
    """LangGraph's `InMemoryStore` with an index, one item a subject, shared by all branches of the thread."""

    name = "LangGraph store"
    line = "LangGraph's store with semantic search, one item a subject, shared by all branches of the thread"
    requires: ClassVar[tuple[str, ...]] = ("langgraph",)

    @classmethod
    def load(cls) -> None:
        with extra("langgraph", wanted="LangGraph's rows", name="branchbench"):
            import langgraph.store.memory  # noqa: F401
        import langchain_core.embeddings  # noqa: F401

    def feed(self) -> None:
        self.load()
        self._store = _opened(self.tools)
        self._keys: dict[str, str] = {}
        self._facts: dict[str, Memory] = {}
        for event in self.scenario.events:
            for fact in self.tools.extractor.facts(self.scenario, event):
                self._put(fact)
            if isinstance(event, Retraction):
                meant = taken_back(self.scenario, event)
                for key in [key for key, fact in self._facts.items() if meant.means(fact, self.scenario)]:
                    self._delete(key)

    def context(self, anchor: str, question: str) -> list[str]:
        items = self._store.search(_NAMESPACE, query=question, limit=LIMIT)
        return self.tools.first_that_fit(item.value["text"] for item in items)

    def _put(self, fact: Memory) -> None:
        """Under the key of its subject, else that of what it supersedes, else its own; it stands there alone."""
        replaced = [self._keys[old] for old in fact.supersedes if old in self._keys]
        key = fact.key or next(iter(replaced), fact.id)
        for other in replaced:
            if other != key:
                self._delete(other)
        self._store.put(_NAMESPACE, key, {"text": fact.text})
        self._keys[fact.id] = key
        self._facts[key] = fact

    def _delete(self, key: str) -> None:
        self._store.delete(_NAMESPACE, key)
        self._facts.pop(key, None)


def _opened(tools: Tools) -> InMemoryStore:
    from langchain_core.embeddings import Embeddings
    from langgraph.store.memory import InMemoryStore

    class Embedding(Embeddings):
        """Texts and questions as the embedder tells them apart, which a plain function could not."""

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            rows: list[list[float]] = tools.embed(texts).tolist()
            return rows

        def embed_query(self, text: str) -> list[float]:
            row: list[float] = tools.embed_query(text).tolist()
            return row

    embedding = Embedding()
    dims = len(embedding.embed_documents([_NAMESPACE[0]])[0])
    return InMemoryStore(index={"dims": dims, "embed": embedding, "fields": ["text"]})
