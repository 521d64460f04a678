"""Which file an owner has: readable, one to one, the same on every file system."""

from __future__ import annotations

from pathlib import Path

import branchmem as bm
import pytest
from branchmem.pool.names import MAX_NAME_BYTES, owner_of, place_of
from hypothesis import example, given
from hypothesis import strategies as st

OWNERS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)


@pytest.mark.parametrize(
    ("owner", "file"),
    [
        ("alice", "alice.bmem"),
        ("alice@example.org", "alice@example.org.bmem"),
        ("user_42-a+b", "user_42-a+b.bmem"),
        ("Alice", "%41lice.bmem"),
        ("..", "%2e..bmem"),
        ("-rf", "%2drf.bmem"),
        ("a/b\0", "a%2fb%00.bmem"),
        ("100%", "100%25.bmem"),
        ("con", "%63on.bmem"),
        ("lpt1.x", "%6cpt1.x.bmem"),
        ("console", "console.bmem"),
        ("é", "%c3%a9.bmem"),
        ("a.bmem", "a.bmem.bmem"),
    ],
)
def test_a_file_is_named_after_its_owner(owner: str, file: str) -> None:
    folder, name = place_of(owner)

    assert name == file
    assert owner_of(folder, name) == owner


@given(OWNERS, OWNERS)
@example("a", "A")
@example("e\u0301", "é")
@example("a%", "a%25")
def test_no_two_owners_share_a_file_even_where_case_is_not_told_apart(one: str, other: str) -> None:
    places = [place_of(owner) for owner in (one, other) if len(owner.encode()) * 3 <= MAX_NAME_BYTES]
    for owner, (folder, file) in zip((one, other), places, strict=False):
        if len(places) == 2:
            assert owner_of(folder, file) == owner
            assert file == file.lower()
            assert file[0] not in ".-"
            assert not set('/\\\0:*?"<>| ') & set(file)
            assert len(f"{file}-draft-draft-lock") <= 255
    assert len(set(places)) == len({one, other}) or len(places) < 2


@pytest.mark.parametrize(
    "file",
    ["Alice.bmem", "%41LICE.bmem", "%61lice.bmem", "alice", "%ff.bmem", "%4.bmem", "ä.bmem", ".bmem", "a b.bmem"],
)
def test_a_file_that_no_owner_would_have_is_nobodys(file: str) -> None:
    assert [owner_of(f"{folder:02x}", file) for folder in range(256)] == [None] * 256


@pytest.mark.parametrize(
    ("owner", "why"),
    [
        ("", "must not be empty"),
        ("a\ud800", "lone surrogate"),
        (b"alice", "must be a str, not bytes"),
        (None, "must be a str, not NoneType"),
        ("a" * 201, "more than 200"),
        ("é" * 34, "more than 200"),
    ],
    ids=["empty", "surrogate", "bytes", "nothing", "long", "long in bytes"],
)
def test_who_cannot_own_a_store_is_refused_before_anything_is_made(tmp_path: Path, owner: str, why: str) -> None:
    with bm.Pool(tmp_path / "pool") as pool:
        for use in (pool.open, pool.path, pool.delete):
            with pytest.raises(bm.InvalidOwner, match=why) as raised:
                use(owner)
            assert raised.value.owner == owner
            assert str(raised.value).isprintable()
    assert list((tmp_path / "pool").iterdir()) == []


def test_the_longest_names_can_be_used(tmp_path: Path) -> None:
    longest = ["a" * 200, "é" * 33 + "ab"]
    with bm.Pool(tmp_path) as pool:
        for owner in longest:
            with pool.open(owner) as store:
                store.append([bm.Message("m", None)])
        assert sorted(pool.owners()) == longest
        assert [pool.delete(owner) for owner in longest] == [True, True]
