"""Who answers, extracts and embeds: behind small protocols, so that every method is given the same.

chat        what a language model is: a request in, a reply out
prompts     what it is asked
answering   from a context to an answer: a language model's, or extractive
extraction  from what was said to facts: a language model's, or scripted
summaries   from what was said to a summary
extractive  the sentence that fits best
local       a model in a GGUF file
weights     where the published model's file comes from
endpoint    a model behind an OpenAI-compatible endpoint
embedding   texts to vectors, cached
cache       every answer, kept by the hash of model and request
journal     a file that several processes add to
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from branchmem.branchbench.models import local, weights
from branchmem.branchbench.models.cache import Cache, Cached
from branchmem.branchbench.models.chat import Chat
from branchmem.branchbench.models.endpoint import Endpoint
from branchmem.errors.branchbench import ModelUnavailable

EXTRACTIVE: Final = "extractive"
LOCAL: Final = "local"


def chat_named(name: str) -> Chat | None:
    """The language model of this name: None for "extractive", which needs none, the published one for "local".

    Every other name is that of a model behind the endpoint in OPENAI_BASE_URL, which must be named: a name that was
    mistyped shall not send anything anywhere.
    Raises: ExtraMissing, WeightsRefused, WeightsMissing for the local one, whose weights are fetched where they are
    not there yet; ModelUnavailable for an endpoint that cannot be asked.
    """
    if name == EXTRACTIVE:
        return None
    if name == LOCAL:
        local.check_installed()  # before a gigabyte is fetched for it
        return local.Local(weights.fetch(), weights.SHA256)
    if not os.environ.get("OPENAI_BASE_URL"):
        why = (
            f"it is neither {EXTRACTIVE} nor {LOCAL}, and OPENAI_BASE_URL names no endpoint that would have it: set it "
            "(OpenAI's own is https://api.openai.com/v1)"
        )
        raise ModelUnavailable(name, why)
    return Endpoint(name)


def chat_kept(name: str, cache: Cache) -> Chat | None:
    """The same, but as far as the cache holds its answers: needs no weights, no package and no network.

    Beside the names of `chat_named`, the full one under which calls are kept will do.
    Raises: ModelUnavailable where the cache holds calls of no such model, or of several.
    """
    if name == EXTRACTIVE:
        return None
    begins = f"{Path(weights.FILE).stem} sha256:{weights.SHA256[:16]}," if name == LOCAL else f"{name} at "
    found = [model for model in cache.models if model == name or model.startswith(begins)]
    if len(found) != 1:
        why = f"the calls kept in {cache.folder} are of {', or '.join(found or cache.models)}: name one"
        raise ModelUnavailable(
            name, why if cache.models else f"no calls are kept in {cache.folder}: run without --kept"
        )
    return Cached(None, cache, found[0])
