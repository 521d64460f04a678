"""Data that is not byte for byte what the manifest names is refused before it is read; the test split stays frozen."""

from __future__ import annotations

from pathlib import Path

import pytest
from branchmem.branchbench.manifest import NAME, SPLITS, data_folder, load, manifest_of, verify, write
from branchmem.branchbench.scenario import lines
from branchmem.errors.branchbench import DataMissing, FrozenDataChanged, SplitFrozen
from dialogues import fit


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Data of four files, two scenarios each."""
    for part in ("classic", "long"):
        for split in SPLITS:
            scenarios = [fit("zh", f"{part}-{split}"), fit("en", f"{part}-{split}")]
            (tmp_path / f"{part}.{split}.jsonl").write_text(lines(scenarios), encoding="utf-8")
    return tmp_path


FILES = ["classic.dev.jsonl", "classic.test.jsonl", "long.dev.jsonl", "long.test.jsonl"]


def test_a_manifest_counts_what_its_files_hold(folder: Path) -> None:
    written = write(folder)

    assert sorted(written.files) == FILES
    assert {(entry.scenarios, entry.probes, entry.leak_probes) for entry in written.files.values()} == {(2, 2, 2)}
    assert {name: entry.bytes for name, entry in written.files.items()} == {
        name: (folder / name).stat().st_size for name in FILES
    }
    assert manifest_of(folder) == verify(folder) == written
    assert sorted(path.name for path in folder.iterdir()) == [*FILES, NAME]


def test_the_same_files_give_the_same_manifest(folder: Path) -> None:
    write(folder)
    before = (folder / NAME).read_bytes()

    write(folder)

    assert (folder / NAME).read_bytes() == before


def test_what_was_written_is_loaded_by_part_and_split(folder: Path) -> None:
    write(folder)

    assert [scenario.id for scenario in load(folder, part="long", split="test")] == ["long-test-zh", "long-test-en"]
    assert [scenario.id for scenario in load(folder, split="dev")] == [
        *("classic-dev-zh", "classic-dev-en", "long-dev-zh", "long-dev-en")
    ]
    assert len(load(folder)) == 8
    assert load(folder, part="classic", split="dev")[0] == fit("zh", "classic-dev")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("place", [0, 0.5, 1], ids=["first", "middle", "last"])
def test_a_changed_byte_is_refused(folder: Path, name: str, place: float) -> None:
    expected = write(folder).files[name].sha256
    content = bytearray((folder / name).read_bytes())
    content[int(place * (len(content) - 1))] ^= 1
    (folder / name).write_bytes(content)

    for refusing in (verify, load):
        with pytest.raises(FrozenDataChanged) as refused:
            refusing(folder)
        assert refused.value.file == name
        assert refused.value.expected == f"SHA-256 {expected}"
        assert refused.value.found != refused.value.expected
        assert expected in str(refused.value)


def test_a_changed_file_is_refused_before_any_line_is_parsed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder)
    (folder / FILES[-1]).write_text("no scenario\n", encoding="utf-8")
    monkeypatch.setattr("branchmem.branchbench.manifest.read", lambda _: pytest.fail("a line was parsed"))

    with pytest.raises(FrozenDataChanged):
        load(folder)


def test_a_part_is_loaded_though_a_file_of_the_other_has_changed(folder: Path) -> None:
    write(folder)
    (folder / "long.test.jsonl").write_text("", encoding="utf-8")

    assert len(load(folder, part="classic")) == 4
    with pytest.raises(FrozenDataChanged):
        load(folder, split="test")


def test_a_missing_file_is_refused_whatever_is_asked_for(folder: Path) -> None:
    write(folder)
    (folder / "long.dev.jsonl").unlink()

    with pytest.raises(FrozenDataChanged, match=r"long\.dev\.jsonl.*found no such file"):
        load(folder, part="classic", split="test")


def test_an_additional_file_is_refused_whatever_is_asked_for(folder: Path) -> None:
    write(folder)
    (folder / "long.more.jsonl").touch()

    with pytest.raises(FrozenDataChanged, match=r"long\.more\.jsonl: the manifest has no such file"):
        load(folder, part="classic", split="test")
    with pytest.raises(FrozenDataChanged, match=r"long\.more\.jsonl"):
        write(folder)


def test_a_file_that_the_manifest_never_had_cannot_be_loaded(folder: Path) -> None:
    (folder / "long.dev.jsonl").unlink()
    write(folder)

    assert len(load(folder, part="classic")) == 4
    with pytest.raises(FrozenDataChanged, match=r"long\.dev\.jsonl"):
        load(folder)


def test_a_dev_split_may_change_and_the_test_split_may_not(folder: Path) -> None:
    write(folder)
    before = (folder / NAME).read_bytes()
    (folder / "long.dev.jsonl").write_text(lines([fit("zh", "long-new")]), encoding="utf-8")
    assert write(folder).files["long.dev.jsonl"].scenarios == 1
    after = (folder / NAME).read_bytes()
    assert after != before

    (folder / "classic.test.jsonl").write_text(lines([fit("zh", "classic-new")]), encoding="utf-8")
    (folder / "long.test.jsonl").unlink()
    with pytest.raises(SplitFrozen, match=r"thaw=True") as refused:
        write(folder)
    assert refused.value.files == ("classic.test.jsonl", "long.test.jsonl")
    assert (folder / NAME).read_bytes() == after

    write(folder, thaw=True)
    assert verify(folder, part="classic").files["classic.test.jsonl"].scenarios == 1


@pytest.mark.parametrize("text", ["", "[]", '{"files": {"long.dev.jsonl": {}}}', '{"files": 7}', "\xff"])
def test_a_manifest_that_cannot_be_read_is_refused(folder: Path, text: str) -> None:
    (folder / NAME).write_text(text, encoding="latin-1")

    with pytest.raises(FrozenDataChanged, match=NAME):
        verify(folder)
    with pytest.raises(FrozenDataChanged, match=NAME):
        write(folder)


def test_a_folder_without_a_manifest_is_refused(folder: Path) -> None:
    with pytest.raises(DataMissing, match="clone"):
        load(folder)
    with pytest.raises(DataMissing, match="clone"):
        load(folder / "nowhere")


def test_the_data_is_found_from_within_a_clone_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "clone" / "bench" / "branchbench" / "data"
    data.mkdir(parents=True)
    monkeypatch.chdir(data.parent)

    assert data_folder() == data
    assert data_folder(tmp_path / "clone" / "python" / "deep") == data
    with pytest.raises(DataMissing, match="clone"):
        data_folder(tmp_path)
