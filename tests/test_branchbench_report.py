"""Tables count what the rows say; a results folder is whole, recountable, and the same bytes for the same rows."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pytest
from branchmem.branchbench import plot, report, table
from branchmem.branchbench.measures import Rate, Row, judged
from branchmem.branchbench.packing import packed
from branchmem.branchbench.scenario import Scenario
from branchmem.errors.branchbench import ResultsRefused
from branchmem.terminal.benchmark import bench_lines
from dialogues import fit

METHODS: Final = {"full history": "all of it", "branchmem": "what is visible", "oracle": "just what is needed"}
CONFIG: Final[dict[str, Any]] = {"model": "nobody", "about": "Made up.", "methods": METHODS}
RIGHT: Final = "To Hangzhou."
LEAK: Final = "To Chengdu."
DENIAL: Final = "To Hangzhou, not to Chengdu any more."
LOST: Final = "I don't know."
FILES: Final = ["answers.jsonl.zst", "config.json", "plot.png", "plot.svg", "table.md"]


def asked(id: str = "moving", language: Any = "en", **changed: Any) -> Scenario:
    """A scenario with one probe, which may be changed; `part` is the scenario's."""
    scenario = replace(fit(language, id), part=changed.pop("part", "classic"))
    return replace(scenario, probes=(replace(scenario.probes[0], **changed),))


def row(scenario: Scenario, method: str, answer: str, *context: str, tokens: int = 10, seconds: float = 0.001) -> Row:
    return judged(scenario, scenario.probes[0], method, context, tokens, seconds, answer)


EDIT: Final = asked("edit")
FORK: Final = asked("fork", operation="fork")
CORRECT: Final = asked("correct", operation="correct", contested="It stands on the path.")
CONTROL: Final = asked("control", forbidden=(), forbids=())

# Leak probes: EDIT, FORK, CORRECT.  Full history leaks at the first two of them, and is right but for those.
MADE_UP: Final = [
    row(EDIT, "full history", LEAK, "Chengdu", "Hangzhou", tokens=30, seconds=0.001),
    row(FORK, "full history", LEAK, "Chengdu", tokens=40, seconds=0.002),
    row(CORRECT, "full history", DENIAL, "Chengdu", "Hangzhou", tokens=50, seconds=0.003),
    row(CONTROL, "full history", RIGHT, "Hangzhou", tokens=20, seconds=0.006),
    row(EDIT, "branchmem", RIGHT, "Hangzhou"),
    row(FORK, "branchmem", RIGHT, "Hangzhou"),
    row(CORRECT, "branchmem", LOST),
    row(CONTROL, "branchmem", RIGHT, "Hangzhou"),
]


def tables(rows: Sequence[Row], methods: Sequence[str] = tuple(METHODS)) -> dict[str, dict[str, list[str]]]:
    """The lines of each table by its heading and method."""
    found: dict[str, dict[str, list[str]]] = {}
    heading = ""
    for line in table.markdown(rows, methods).splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif line.startswith("|") and not line.startswith("| ---"):
            method, *cells = line.strip("| ").split(" | ")
            found.setdefault(heading, {})[method] = cells
    return found


def test_a_table_counts_what_the_rows_say() -> None:
    head, full, ours = tables(MADE_UP)["Classic"].values()
    assert head == ["exposure", "leak", "negated", "correct", "starved", "tokens", "ms"]
    three, two, one, none = (table.percent(Rate(hits, 3)) for hits in (3, 2, 1, 0))
    assert full == [three, two, one, table.percent(Rate(2, 4)), table.percent(Rate(1, 4)), "35", "3.0"]
    assert ours == [none, none, none, table.percent(Rate(3, 4)), table.percent(Rate(1, 4)), "10", "1.0"]


def test_rates_are_written_with_their_interval() -> None:
    assert table.percent(Rate(2, 34)) == "5.9 % (1.6–19.1)"
    assert table.percent(Rate(34, 34)) == "100.0 % (89.8–100.0)"
    assert table.percent(Rate(0, 0)) == "–"
    assert (table.short(Rate(2, 34)), table.short(Rate(0, 0))) == ("5.9 %", "–")


def test_operations_are_counted_each_with_its_own_rows() -> None:
    leaks = tables(MADE_UP)["Classic, leak by operation"]
    assert leaks["method"] == ["edit", "fork", "correct"]
    # The control is an edit too, but no leak probe.
    assert leaks["full history"] == ["100 % of 1 (21–100)", "100 % of 1 (21–100)", "0 % of 1 (0–79)"]
    assert tables(MADE_UP)["Classic, correct by operation"]["full history"][0] == "50 % of 2 (9–91)"
    assert list(tables(MADE_UP)) == [
        "Classic",
        "Classic, without contested probes",
        *(f"Classic, {measure} by operation" for measure in ("exposure", "leak", "negated", "correct", "starved")),
    ]


def test_contested_probes_are_left_out_where_it_says_so() -> None:
    full = tables(MADE_UP)["Classic, without contested probes"]["full history"]
    assert full[:2] == [table.percent(Rate(2, 2))] * 2
    assert full[3] == table.percent(Rate(1, 3))
    text = table.markdown(MADE_UP, list(METHODS))
    assert "4 probes, 3 of them leak probes." in text
    assert "3 probes, 2 of them leak probes." in text


def test_where_no_or_every_probe_is_contested_it_says_so() -> None:
    assert "No probe is contested" in table.markdown([row(EDIT, "branchmem", RIGHT)], list(METHODS))
    assert "Every probe is contested." in table.markdown([row(CORRECT, "branchmem", RIGHT)], list(METHODS))


def test_languages_and_parts_are_counted_apart_and_never_averaged() -> None:
    mixed = [
        row(EDIT, "branchmem", LEAK),
        row(asked("edit", "zh"), "branchmem", "杭州。"),
        row(asked("fork", "zh"), "branchmem", "杭州。"),
        row(asked("far", part="long"), "branchmem", LEAK),
    ]
    leaks = {heading: lines["branchmem"][1] for heading, lines in tables(mixed).items() if "by" not in heading}
    assert leaks == {
        "Classic": table.percent(Rate(1, 3)),
        "Classic, Chinese": table.percent(Rate(0, 2)),
        "Classic, English": table.percent(Rate(1, 1)),
        "Long": table.percent(Rate(1, 1)),
    }
    assert "All probes are in English." in table.markdown(mixed, list(METHODS)).partition("## Long")[2]


def test_methods_stand_in_the_order_asked_for_whatever_that_of_the_rows() -> None:
    every = [*MADE_UP, row(EDIT, "oracle", RIGHT, "Hangzhou")]
    for order in (list(METHODS), ["oracle", "full history", "branchmem"]):
        for rows in (every, every[::-1]):
            assert list(tables(rows, order)["Classic"]) == ["method", *order]


def test_a_method_without_rows_is_named_and_one_with_fewer_too() -> None:
    text = " ".join(table.asked(MADE_UP[:-1], list(METHODS)))
    assert text == "4 probes, 3 of them leak probes. Not run: oracle. Asked fewer, so not to be compared: branchmem 3."
    assert "oracle" not in tables(MADE_UP)["Classic"]


def test_without_leak_probes_leaks_are_a_dash_and_the_rest_is_counted() -> None:
    lines = tables([row(CONTROL, "branchmem", RIGHT, "Hangzhou")])
    right = table.percent(Rate(1, 1))
    assert lines["Classic"]["branchmem"] == ["–", "–", "–", right, table.percent(Rate(0, 1)), "10", "1.0"]
    assert lines["Classic, leak by operation"]["branchmem"] == ["–"]


def test_of_no_rows_there_is_no_table() -> None:
    assert table.markdown([], list(METHODS)) == "No probe was asked.\n"


def test_a_name_cannot_break_the_table() -> None:
    odd = "a | b\nc <d>"
    text = table.markdown([row(EDIT, odd, RIGHT)], [odd]) + table.legend({odd: "x\n\n# y | z"})
    assert "| a \\| b c &lt;d> |" in text
    assert "- **a \\| b c &lt;d>**: x # y \\| z\n" in text


def test_the_legend_explains_every_column_and_every_method() -> None:
    legend = table.legend(METHODS)
    for name in tables(MADE_UP)["Classic"]["method"]:
        assert f"- *{name}*: " in legend
    for name, line in METHODS.items():
        assert f"- **{name}**: {line}\n" in legend


#: Rows with one value of another kind than a row has.
ODD: Final = [
    packed(json.dumps(MADE_UP[0].to_dict() | changed).encode() + b"\n", 1)
    for changed in (
        *({"answer": None}, {"answer": 7}, {"context": "Chengdu"}, {"context": [7]}),
        *({"tokens": "30"}, {"seconds": "0.1"}, {"scenario": ["edit-en"]}, {"method": ["branchmem"]}),
    )
]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results folder of the rows that are made up; to be read only."""
    folder = tmp_path_factory.mktemp("results") / "deep" / "down"
    report.write(folder, MADE_UP, CONFIG)
    return folder


def test_a_results_folder_has_all_and_reads_back(written: Path) -> None:
    rows, config = report.read(written)
    assert rows == MADE_UP
    assert config == CONFIG | {"answers_sha256": sha256((written / "answers.jsonl.zst").read_bytes()).hexdigest()}
    assert names(written) == FILES
    page = (written / "table.md").read_text(encoding="utf-8")
    assert page.startswith("# branchbench: nobody\n\nMade up.\n\n![")
    assert "](plot.svg)" in page
    assert table.markdown(MADE_UP, list(METHODS)) in page
    assert page.endswith(table.legend(METHODS))
    assert (written / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_a_long_name_of_a_model_stands_whole_in_the_page_and_short_in_its_titles(tmp_path: Path) -> None:
    name = "qwen sha256:cc324af070c2ecbf, llama-cpp-python 0.3.36 (AVX2 F16C FMA), n_ctx 16384, greedy"
    report.write(tmp_path, MADE_UP, CONFIG | {"model": name})
    page = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert page.startswith(f"# branchbench: qwen\n\nMade up.\n\nThe model: {name}.\n\n![")
    assert "branchbench, answers by qwen" in comments((tmp_path / "plot.svg").read_text())
    assert report.read(tmp_path)[1]["model"] == name


def test_the_same_rows_give_the_same_bytes_however_the_machine_draws(written: Path, tmp_path: Path) -> None:
    import matplotlib as mpl

    with mpl.rc_context({"font.size": 20, "figure.facecolor": "black", "svg.fonttype": "none"}):
        report.write(tmp_path, MADE_UP, CONFIG)
    for name in FILES:
        assert (written / name).read_bytes() == (tmp_path / name).read_bytes(), name


@pytest.mark.parametrize(
    "answer", ["one\u2028two\u2029three\x85four", "a\nb\r\nc", "\ud83d half", "杭州\x00", "", '"}\n{"']
)
def test_any_answer_survives_the_file(tmp_path: Path, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plot, "draw", drawn)
    odd = [row(EDIT, "branchmem", answer, answer, "Hangzhou"), row(FORK, "branchmem", RIGHT)]
    report.write(tmp_path, odd, CONFIG)
    assert report.read(tmp_path)[0] == odd


def drawn(rows: Any, methods: Any, title: str, path: Path) -> None:
    path.with_suffix(".svg").write_text(title)
    path.with_suffix(".png").write_text(title)


def test_a_results_folder_is_written_again_in_place_and_other_files_are_let_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plot, "draw", drawn)
    (tmp_path / "notes.txt").write_text("mine")
    report.write(tmp_path, MADE_UP, CONFIG)
    report.write(tmp_path, MADE_UP[:2], CONFIG | {"about": "Less."})

    assert report.read(tmp_path)[0] == MADE_UP[:2]
    assert "Less." in (tmp_path / "table.md").read_text()
    assert names(tmp_path) == sorted([*FILES, "notes.txt"])


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_fails_or_is_interrupted_while_it_is_made_leaves_the_folder_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plot, "draw", drawn)
    report.write(tmp_path, MADE_UP, CONFIG)
    before = contents(tmp_path)

    def interrupted(rows: Any, methods: Any, title: str, path: Path) -> None:
        path.with_suffix(".svg").write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr(plot, "draw", interrupted)
    with pytest.raises(KeyboardInterrupt):
        report.write(tmp_path, MADE_UP[:2], CONFIG)
    with pytest.raises(TypeError):
        report.write(tmp_path, MADE_UP[:2], CONFIG | {"machine": object()})
    assert contents(tmp_path) == before


@pytest.mark.parametrize("after", range(5))
def test_a_folder_that_was_killed_between_two_replacements_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    monkeypatch.setattr(plot, "draw", drawn)
    report.write(tmp_path, MADE_UP, CONFIG)
    replaced: list[str] = []
    replace_file = Path.replace

    def killed(path: Path, target: Path) -> Path:
        if len(replaced) == after:
            raise KeyboardInterrupt
        replaced.append(path.name)
        return replace_file(path, target)

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        report.write(tmp_path, MADE_UP[:2], CONFIG)

    assert len(replaced) == after
    assert names(tmp_path) == FILES
    if not after:
        assert report.read(tmp_path)[0] == MADE_UP
    else:
        with pytest.raises(ResultsRefused, match="interrupted"):
            report.read(tmp_path)


@pytest.mark.parametrize("name", ["answers.jsonl.zst", "config.json"])
def test_a_folder_that_lacks_a_file_or_has_another_in_its_place_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(plot, "draw", drawn)
    report.write(tmp_path, MADE_UP, CONFIG)
    for form in (b"", b"{}", b"[1]", b"\xff", None):
        if form is None:
            (tmp_path / name).unlink()
        else:
            (tmp_path / name).write_bytes(form)
        with pytest.raises(ResultsRefused) as refused:
            report.read(tmp_path)
        assert refused.value.where == str(tmp_path)


@pytest.mark.parametrize(
    "content", [b"not packed", packed(b"{}\n", 1), packed(b"half a row", 1), packed(b"[1]\n", 1), *ODD]
)
def test_answers_that_are_no_rows_are_refused_though_the_configuration_names_them(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "answers.jsonl.zst").write_bytes(content)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"answers_sha256": sha256(content).hexdigest()}))
    with pytest.raises(ResultsRefused, match="holds no rows"):
        report.read(tmp_path)


def test_rows_that_would_be_counted_twice_or_not_at_all_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultsRefused, match=r"branchmem, scenario control-en, probe p1: 2 rows"):
        report.write(tmp_path, [*MADE_UP, MADE_UP[-1]], CONFIG)
    with pytest.raises(ResultsRefused, match=r"method mine, scenario edit-en, probe p1: the configuration"):
        report.write(tmp_path, [row(EDIT, "mine", RIGHT)], CONFIG)
    assert names(tmp_path) == []


def test_answers_are_recounted_by_the_data_as_it_is_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plot, "draw", drawn)
    report.write(tmp_path, MADE_UP, CONFIG)
    data = [EDIT, FORK, CORRECT, CONTROL]

    assert report.recount(tmp_path, data, {}) == MADE_UP

    stricter = asked("edit", forbidden=("Hangzhou",), contested="Why not?", operation="fork")
    anew = report.recount(tmp_path, [stricter, *data[1:]], {})
    changed = [row for row in anew if row.scenario == EDIT.id]
    assert [(row.leaked, row.contested, row.operation) for row in changed] == [
        (False, True, "fork"),
        (True, True, "fork"),
    ]
    assert [row for row in anew if row.scenario != EDIT.id] == [row for row in MADE_UP if row.scenario != EDIT.id]
    assert report.read(tmp_path)[0] == anew
    assert table.markdown(anew, list(METHODS)) in (tmp_path / "table.md").read_text(encoding="utf-8")


def test_a_recount_without_the_data_of_a_row_is_refused_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plot, "draw", drawn)
    report.write(tmp_path, MADE_UP, CONFIG)
    before = contents(tmp_path)
    with pytest.raises(ResultsRefused, match="no probe p1 of scenario fork-en"):
        report.recount(tmp_path, [EDIT], {})
    assert contents(tmp_path) == before


def test_the_answers_are_json_lines_that_others_can_count(written: Path) -> None:
    import zstandard

    text = zstandard.ZstdDecompressor().decompress((written / "answers.jsonl.zst").read_bytes()).decode()
    forms = [json.loads(line) for line in text.split("\n")[:-1]]
    assert forms == [row.to_dict() for row in MADE_UP]


@pytest.mark.parametrize(
    "changed",
    [
        {"methods": list(METHODS)},
        {"methods": None},
        {"methods": {"oracle": 7}},
        {"model": 7},
        {"about": None},
        {"data": ["classic.test.jsonl"]},
        {"data": None},
    ],
)
def test_a_configuration_with_another_kind_of_value_is_refused(written: Path, changed: dict[str, Any]) -> None:
    config = json.loads((written / "config.json").read_bytes()) | changed
    (written / "config.json").write_text(json.dumps(config))
    before = contents(written)

    with pytest.raises(ResultsRefused, match=r"no results of a run .*: name a folder that a run has written"):
        report.recount(written, [EDIT, FORK, CORRECT, CONTROL], {})
    assert contents(written) == before


def svg(tmp_path: Path, rows: Sequence[Row], methods: Sequence[str] = tuple(METHODS)) -> str:
    plot.draw(rows, {name: number for number, name in enumerate(methods, 1)}, "made up", tmp_path / "plot")
    assert (tmp_path / "plot.png").stat().st_size
    return (tmp_path / "plot.svg").read_text()


def comments(text: str) -> list[str]:
    """The texts of a picture, which it draws as paths below a comment."""
    return [found.strip() for found in re.findall(r"<!-- (.*?) -->", text)]


def test_a_plot_names_and_numbers_each_method_that_has_a_point(written: Path) -> None:
    said = comments((written / "plot.svg").read_text())
    assert {"1  full history", "13  branchmem", "1", "13", "Classic", "↖ better"} <= set(said)
    assert "branchbench, answers by nobody" in said
    assert "14  oracle" not in said
    assert "Long" not in said


def test_a_method_that_is_none_of_ours_is_numbered_after_them(tmp_path: Path) -> None:
    config = CONFIG | {"methods": {"mine": "a method of somebody", "oracle": "just what is needed"}}
    report.write(tmp_path, [row(EDIT, "mine", RIGHT), row(EDIT, "oracle", RIGHT)], config)
    assert {"15  mine", "14  oracle"} <= set(comments((tmp_path / "plot.svg").read_text()))


def test_a_plot_of_two_parts_has_a_panel_for_each_and_one_legend(tmp_path: Path) -> None:
    far = asked("far", part="long")
    said = comments(svg(tmp_path, [*MADE_UP, row(far, "branchmem", RIGHT), row(far, "oracle", RIGHT)]))
    assert {"Classic", "Long", "3  oracle"} <= set(said)
    assert said.count("2  branchmem") == 1


def test_a_plot_without_leak_probes_or_rows_says_so(tmp_path: Path) -> None:
    assert "no leak probe was asked" in comments(svg(tmp_path, [row(CONTROL, "branchmem", RIGHT)]))
    assert "no probe was asked" in comments(svg(tmp_path, []))


def test_a_plot_is_small_on_white_and_without_a_date_and_numbers_even_points_upon_each_other(tmp_path: Path) -> None:
    many = [f"method {number}" for number in range(15)]
    text = svg(tmp_path, [row(scenario, name, RIGHT) for name in many for scenario in (EDIT, FORK)], many)
    assert len(text) < 150_000
    assert "fill: #ffffff" in text
    assert "dc:date" not in text
    assert {str(number) for number in range(1, 16)} <= set(comments(text))


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_lines_fit_the_terminal_and_say_as_much_as_they_can(width: int) -> None:
    methods = [*METHODS, "a method with a long name"]
    rows = [*MADE_UP, row(EDIT, methods[-1], RIGHT)]
    lines = list(bench_lines("Classic", rows, methods, width=width))
    assert all(line.cell_len <= width for line in lines)
    shown = "\n".join(line.plain for line in lines)
    assert " ".join(shown.split()).startswith("Classic 4 probes, 3 of them leak probes. Not run: oracle.")
    assert ("(21–94)" in shown, "66.7 % (20.8–93.9)" in shown) == (width == 120, width == 200)
    assert ("…" in shown, "66.7 %" in shown) == (width <= 80, width in (100, 200))
    assert ("Rates in %." in " ".join(shown.split())) == (width not in (100, 200))


def test_lines_of_no_rows_are_a_heading() -> None:
    lines = [line.plain for line in bench_lines("Classic", [], list(METHODS), width=80)]
    assert lines[0].startswith("Classic  0 probes")
    assert len(lines) == 3
