"""What the speakers of the Long part can say: the phrase tables, read and checked.

One table a language, in YAML beside the data.  A subject of `subjects` is something that the user states, in one of
its `states`; of one in `requests` the user asks for something (`calls`) and the assistant states the value.  `fact` is
what a good extractor keeps, `asks` are the questions of probes, `about` names the subject without its value, `tips`
are the assistant's answers.  In all of them `{v}` is the place of the value.

The one rule: a word can give a subject away only where its value is stated.  So no value stands in a text of its own
subject without `{v}`, or in any text of another subject, or within another value: `collisions` finds those that do.
And both tables have the same shape, so that one layout serves both languages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from branchmem.branchbench.scenario import Language
from branchmem.errors import ExtraMissing
from branchmem.errors.branchbench import DataMissing, PhrasesInvalid
from branchmem.events import SCOPES

#: Where the tables are in a clone of the repository.
FOLDER: Final = Path(__file__).resolve().parents[4] / "bench" / "branchbench" / "phrases"
LANGUAGES: Final[tuple[Language, ...]] = ("zh", "en")

_FEWEST: Final = {"values": 8, "states": 3, "asks": 2, "tips": 2, "calls": 2}
_PLACE: Final = "{v}"


@dataclass(frozen=True, slots=True)
class Value:
    """What may stand for `{v}`, and the keyword by which it is found."""

    text: str
    keyword: str


@dataclass(frozen=True, slots=True)
class Subject:
    """One thing that can be stated; `calls` are empty for what the user states, `tips` for what the assistant does."""

    id: str
    about: str
    values: tuple[Value, ...]
    states: tuple[str, ...]
    fact: str
    asks: tuple[str, ...]
    tips: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()

    def texts(self) -> tuple[str, ...]:
        """All that can be said of it, with `{v}` for the value."""
        return (self.about, *self.states, self.fact, *self.asks, *self.tips, *self.calls)


@dataclass(frozen=True, slots=True)
class Phrases:
    """The table of one language.  Pairs in `openings`, `checkpoints` and `returns` are the user's text and its answer.

    `joints` stand between two statements in one message; `{state}` is a statement, `{V}` a value that begins a
    sentence.  `retractions` are by scope.
    """

    language: Language
    subjects: tuple[Subject, ...]
    requests: tuple[Subject, ...]
    joints: tuple[str, ...]
    echoes: tuple[str, ...]
    acknowledgements: tuple[str, ...]
    openings: tuple[tuple[str, str], ...]
    checkpoints: tuple[tuple[str, str], ...]
    returns: tuple[tuple[str, str], ...]
    corrections: tuple[str, ...]
    correction_replies: tuple[str, ...]
    retractions: Mapping[str, tuple[str, ...]]
    retraction_replies: tuple[str, ...]
    adoptions: tuple[str, ...]
    adoption_replies: tuple[str, ...]

    def joined(self, *sentences: str) -> str:
        """Sentences one after the other, as the language sets them."""
        between = "" if self.language == "zh" else " "
        return between.join(sentence.strip() for sentence in sentences if sentence)

    def common(self) -> Iterator[str]:
        """What is said of no subject in particular."""
        for one in fields(self):
            if one.name not in ("language", "subjects", "requests"):
                yield from _strings(getattr(self, one.name))

    def shape(self) -> list[object]:
        """What both languages have in common: subjects in order, and how many texts of each sort there are."""
        sizes = [
            (one.id, len(one.values), len(one.states), len(one.asks), len(one.tips), len(one.calls))
            for one in (*self.subjects, *self.requests)
        ]
        rest = [
            (one.name, {scope: len(texts) for scope, texts in value.items()} if isinstance(value, dict) else len(value))
            for one in fields(self)
            if one.name != "language" and (value := getattr(self, one.name)) is not None
        ]
        return [*sizes, *rest]


def read(language: Language, folder: Path = FOLDER) -> Phrases:
    """The table of a language.

    Raises: PhrasesInvalid, with the subject at fault; DataMissing where there is no table; ExtraMissing.
    """
    try:
        import yaml
    except ModuleNotFoundError as error:
        if error.name != "yaml":
            raise
        raise ExtraMissing("the phrase tables of branchbench", "PyYAML", "branchbench") from None
    path = folder / f"{language}.yaml"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DataMissing(str(path)) from None
    try:
        return _phrases(language, yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except yaml.YAMLError as error:
        raise PhrasesInvalid(path.name, " ".join(str(error).split())) from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PhrasesInvalid(path.name, f"{type(error).__name__}: {error}") from None


def read_all(folder: Path = FOLDER) -> dict[Language, Phrases]:
    """The tables of all languages, of one shape.  Raises: as `read`."""
    tables = {language: read(language, folder) for language in LANGUAGES}
    first, *others = tables.values()
    for other in others:
        for mine, theirs in zip(first.shape(), other.shape(), strict=False):
            if mine != theirs:
                why = f"{theirs} is not as in {first.language}.yaml, which has {mine}"
                raise PhrasesInvalid(f"{other.language}.yaml", why)
        if len(first.shape()) != len(other.shape()):
            raise PhrasesInvalid(f"{other.language}.yaml", f"it has other subjects than {first.language}.yaml")
    return tables


def collisions(phrases: Phrases) -> list[str]:
    """Where a value stands in a text that is not to give it away; nothing where the rule holds.

    Raises: ExtraMissing for Chinese without OpenCC.  Cost: O(values x length of all texts), a tenth of a second.
    """
    from branchmem.branchbench.keywords import forms, normal, stands_in

    everyone = (*phrases.subjects, *phrases.requests)
    values = [(subject.id, value) for subject in everyone for value in subject.values]
    told = [(f"{text!r}", text, None) for text in phrases.common()]
    told += [(f"{text!r} of {subject.id}", text, None) for subject in everyone for text in subject.texts()]
    held = [(f"the value {value.text!r} of {id}", f"{value.text} {value.keyword}", value) for id, value in values]
    read = [(where, normal(text), of) for where, text, of in (*told, *held)]
    everything = "\n".join(text for _, text, _ in read)
    found = []
    for owner, value in values:
        if not stands_in(value.keyword, value.text):
            found.append(f"{value.keyword!r} of {owner} does not stand in its own text {value.text!r}")
        own = normal(f"{value.text} {value.keyword}")
        if all(everything.count(form) == own.count(form) for form in forms(value.keyword)):
            continue
        for where, text, of in read:
            if of is not value and stands_in(value.keyword, text):
                found.append(f"{value.keyword!r} of {owner} stands in {where}")
    return found


def _phrases(language: Language, form: Mapping[str, Any]) -> Phrases:
    def texts(name: str) -> tuple[str, ...]:
        return _texts(form[name], name)

    def pairs(name: str) -> tuple[tuple[str, str], ...]:
        return tuple(_pair(pair, name) for pair in form[name])

    subjects = tuple(_subject(id, one) for id, one in form["subjects"].items())
    for first, second in zip(subjects[::2], subjects[1::2], strict=True):
        if len(first.values) != len(second.values):
            raise ValueError(f"{first.id} and {second.id} are a pair, and have different numbers of values")
    return Phrases(
        language=language,
        subjects=subjects,
        requests=tuple(_subject(id, one) for id, one in form["requests"].items()),
        joints=texts("joints"),
        echoes=texts("echoes"),
        acknowledgements=texts("acknowledgements"),
        openings=pairs("openings"),
        checkpoints=pairs("checkpoints"),
        returns=pairs("returns"),
        corrections=texts("corrections"),
        correction_replies=texts("correction_replies"),
        retractions={scope: _texts(form["retractions"][scope], f"retractions of {scope}") for scope in SCOPES},
        retraction_replies=texts("retraction_replies"),
        adoptions=texts("adoptions"),
        adoption_replies=texts("adoption_replies"),
    )


def _subject(id: str, form: Mapping[str, Any]) -> Subject:
    lists = {name: _texts(form.get(name, ()), f"{name} of {id}") for name in _FEWEST}
    for name, texts in lists.items():
        if len(texts) < _FEWEST[name] and (name in form or name not in ("tips", "calls")):
            raise ValueError(f"{id} has {len(texts)} {name}, of {_FEWEST[name]} at least")
    if bool(lists["tips"]) == bool(lists["calls"]):
        raise ValueError(f"{id} has either tips, where the user states it, or calls, where the assistant does")
    fact, about = _texts([form["fact"], form["about"]], id)
    for name, texts, holds in (
        ("states", lists["states"], True),
        ("fact", (fact,), True),
        ("asks", lists["asks"], False),
        ("about", (about,), False),
        ("tips", lists["tips"], False),
        ("calls", lists["calls"], False),
    ):
        for text in texts:
            if (text.count(_PLACE) == 1) != holds or text.count("{") != holds:
                raise ValueError(f"{name} of {id} has {'one' if holds else 'no'} {_PLACE}: {text!r}")
    values = tuple(_value(text) for text in lists["values"])
    return Subject(id, about, values, lists["states"], fact, lists["asks"], lists["tips"], lists["calls"])


def _value(text: str) -> Value:
    shown, _, keyword = text.partition(" = ")
    return Value(shown, keyword or shown)


def _texts(form: Sequence[Any], name: str) -> tuple[str, ...]:
    for text in form:
        if not isinstance(text, str):
            raise TypeError(f"{name} has {text!r}, which YAML takes for no text: put it in quotes")
    if isinstance(form, str) or len(set(form)) != len(form):
        raise ValueError(f"{name} is no list of different texts")
    return tuple(form)


def _pair(form: Sequence[Any], name: str) -> tuple[str, str]:
    first, second = _texts(form, name)
    return first, second


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _strings(one)
    elif isinstance(value, tuple):
        for one in value:
            yield from _strings(one)
