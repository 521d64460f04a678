"""Memory that travels: a set of events in one signed file, and what becomes of it where it is taken in.

A bundle adds no second rule: what is trusted joins the log as events, and what is not trusted stays outside.

file, writing       one file: read only as it was signed, written whole or not at all
manifest, frames    what it says of itself, and its pieces
keys, pins          who signs, and whom a store trusts
selection           which events the views at some refs need
exporting           a log, or a part of it, as a bundle
importing           a bundle into a store: admission, then joining or holding
admission           whose bundles may join, and in which order
joining             the events of a pinned issuer become part of the log
arriving            where the refs of a bundle would stand here
holding, held       what of all others is kept outside of the log, and how it is adopted
receipts            what was done, in four lines
extra               what must be installed for all this
"""

from branchmem.bundle.exporting import export_bundle
from branchmem.bundle.file import BundleFile, Proven
from branchmem.bundle.held import Held, HeldBundle, Originals
from branchmem.bundle.importing import STRATEGIES, import_bundle
from branchmem.bundle.keys import Key, fingerprint, load_key, make_key
from branchmem.bundle.manifest import Base, Counts, Manifest
from branchmem.bundle.pins import Pin, Pins
from branchmem.bundle.receipts import Arrived, Exported, Imported
from branchmem.bundle.writing import BundleWriter

__all__ = [
    "STRATEGIES",
    "Arrived",
    "Base",
    "BundleFile",
    "BundleWriter",
    "Counts",
    "Exported",
    "Held",
    "HeldBundle",
    "Imported",
    "Key",
    "Manifest",
    "Originals",
    "Pin",
    "Pins",
    "Proven",
    "export_bundle",
    "fingerprint",
    "import_bundle",
    "load_key",
    "make_key",
]
