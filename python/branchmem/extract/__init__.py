"""From messages to memories: extraction with provenance, the summary of a session, and prompts that fit.

A memory that is made here says which messages it comes from, and which memories the answers among them were written
with; so it is visible where all of that is, and goes where any of it is taken back.  What was not cited comes from all
that was shown: to list too much hides, to list too little leaks.  No rule of visibility lives here.

reading     from new messages on a path to memories, on the branch that they come from
shown       what an extractor is shown, and what it finds
outcome     what became of an extraction
model       a language model that extracts
summaries   the summary of a session, one a branch
compaction  a prompt that is brought down to a budget, in four stages
turns       the messages of a prompt in turns that must not be taken apart
place       where something is made of a path
marks       how far each branch was read
provenance  what a memory from some messages must derive from, and of which nothing may be made
frames      what branchmem itself wrote into a prompt, and how it is told from what was said
cutting     long texts with their middle left out, and how many tokens a text takes
asking      work that waits for answers, in line or in a loop; a model that is asked again with what was wrong
"""

from __future__ import annotations

from branchmem.errors.extract import ExtractionFailed, InvalidExtraction, PromptTooLong
from branchmem.extract.compaction import Compacted, Stage, acompact, compact
from branchmem.extract.frames import without_frames
from branchmem.extract.marks import mark_read
from branchmem.extract.model import ModelExtractor
from branchmem.extract.outcome import Extracted, Refused
from branchmem.extract.reading import aextract, aextract_in, extract, extract_in
from branchmem.extract.shown import Extractor, Found, Shown
from branchmem.extract.summaries import ModelSummariser, Passage, Summariser, asummarise, summarise, summary_of

__all__ = [
    "Compacted",
    "Extracted",
    "ExtractionFailed",
    "Extractor",
    "Found",
    "InvalidExtraction",
    "ModelExtractor",
    "ModelSummariser",
    "Passage",
    "PromptTooLong",
    "Refused",
    "Shown",
    "Stage",
    "Summariser",
    "acompact",
    "aextract",
    "aextract_in",
    "asummarise",
    "compact",
    "extract",
    "extract_in",
    "mark_read",
    "summarise",
    "summary_of",
    "without_frames",
]
