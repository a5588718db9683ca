import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import given
from hypothesis import settings as with_settings
from hypothesis import strategies as st

from selfreminder import benchmarks, methods
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import Size
from selfreminder.experiment.comparison import Comparison, shared_settings
from selfreminder.experiment.sweep import read_sweep
from selfreminder.experiment.tuning.tuned import (
    TUNED,
    _read,
    describe_untuned,
    find_tuned,
    locate_section,
    read_table,
    seal_table,
    with_section,
    write_sections,
)


def test_a_table_goes_before_the_one_that_comes_with_selfreminder(tmp_path: Path) -> None:
    table = tmp_path / "x.toml"
    table.write_text(
        "[permuted-mnist.small.ewc]\nstrength = 7\nlr = 0.002\nvalidation = {}\n"
        "[permuted-mnist.small.icarl.at_per_class.1]\nstrength = 8\nvalidation = {}\n"
        "[mixture.demo.icarl]\nstrength = 3\nvalidation = {}\nwhere = { tasks = 3, epochs = 2 }\n"
        '[split-cifar10.small.fsr-logit.at_per_task.9]\nstrength = 9\nmemory_batch = "none"\nvalidation = {}\n'
    )

    def chosen(method: str, size: Size | None = None, benchmark: str = "permuted-mnist") -> dict[str, Any]:
        return find_tuned(benchmark, "small", method, size, table)

    assert chosen("ewc") == {"strength": 7, "lr": 0.002}
    assert chosen("fsr-logit") == find_tuned("permuted-mnist", "small", "fsr-logit")
    assert (
        chosen("fsr-logit", Size(1))
        == find_tuned("permuted-mnist", "small", "fsr-logit", Size(1))
        != chosen("fsr-logit")
    )
    assert chosen("icarl", Size(1))["strength"] == 8
    assert chosen("icarl", Size(77)) == chosen("icarl") == find_tuned("permuted-mnist", "small", "icarl")
    assert chosen("fsr-logit", Size(per_task=9), "split-cifar10") == {"strength": 9, "memory_batch": None}
    assert describe_untuned("split-cifar10", "small", "fsr-logit", Size(per_task=9), table) is None
    assert describe_untuned("mixture", "demo", "fsr-logit", None, table) == "fsr-logit: defaults"
    assert describe_untuned("mixture", "demo", "icarl", None, table) == "icarl: what was chosen with 3 tasks, 2 epochs"
    assert describe_untuned("mixture", "demo", "icarl", None, table, {"tasks": 3, "epochs": 2}) is None
    assert describe_untuned("mixture", "demo", "si") == "si: defaults"

    (run,) = Comparison(benchmark="permuted-mnist", scale="small", methods=("ewc",), seeds=1, tuned=table).experiments
    assert (run.strength, run.lr) == (7, 0.002)
    spec = tmp_path / "spec.toml"
    spec.write_text('benchmark = "permuted-mnist"\nscale = "small"\nmethod = "ewc"\nseeds = 1\n')
    assert read_sweep(spec, tuned=table).experiments == [run]
    spec.write_text('benchmark = "permuted-mnist"\nmethod = "ewc"\n')
    with pytest.raises(SelfReminderError, match="it names no scale"):
        read_sweep(spec, tuned=table)


def test_all_that_is_a_methods_own_comes_from_a_table(tmp_path: Path) -> None:
    table = tmp_path / "x.toml"
    table.write_text(
        '[permuted-mnist.demo.adam]\nlr = 0.1\nweight_decay = 0.0\nbatch_size = 7\noptimizer = "sgd"\nplateau = true\n'
    )
    with_table, without = (
        Comparison(benchmark="permuted-mnist", methods=("adam",), seeds=1, tuned=path) for path in (table, None)
    )
    (one,), (other,) = with_table.experiments, without.experiments
    assert one == replace(other, lr=0.1, weight_decay=0.0, batch_size=7, optimizer="sgd", plateau=True)
    assert shared_settings(with_table.experiments[0]) == shared_settings(
        without.experiments[0]
    )  # they may share a folder


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[permuted-mnist", "x.toml is no TOML"),
        ("[permutted-mnist.demo.ewc]", "x.toml: unknown benchmark 'permutted-mnist': did you mean 'permuted-mnist'"),
        ("[permuted-mnist.dmo.ewc]", r"x.toml: \[permuted-mnist\]: unknown scale 'dmo': did you mean 'demo'"),
        ("[permuted-mnist.demo.ewx]", r"x.toml: \[permuted-mnist.demo\]: unknown method 'ewx': did you mean 'ewc'"),
        ("[permuted-mnist.demo.ewc]\nstrenght = 1", r"\[permuted-mnist.demo.ewc\]: unknown field 'strenght': did you"),
        ("[permuted-mnist.demo.ewc]\nstrength = 'x'", r'\[permuted-mnist.demo.ewc\]: strength is "x": it must be a'),
        ("[permuted-mnist.demo.ewc]\nepochs = 3", "unknown field 'epochs'"),
        (
            "[permuted-mnist.demo.ewc.at_per_class.1]\nlr = true",
            r"ewc.at_per_class.1\]: lr is true: it must be a number",
        ),
        ("[default.ewx]", r"x.toml: \[default\]: unknown method 'ewx'"),
        ("[permuted-mnist.demo]\newc = 3", r"\[permuted-mnist.demo\] must hold tables"),
        ("permuted-mnist = 3", r"\[permuted-mnist\] must hold tables"),
    ],
)
def test_mistakes_in_a_table(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(SelfReminderError, match=message):
        read_table(tmp_path / "x.toml")


def test_a_table_that_changes_is_read_again(tmp_path: Path) -> None:
    table = tmp_path / "x.toml"
    for strength in (1, 22, 333):
        table.write_text(f"[permuted-mnist.demo.ewc]\nstrength = {strength}\n")
        assert find_tuned("permuted-mnist", "demo", "ewc", table=table) == {"strength": strength}


numbers = st.floats(1e-6, 1e6).map(lambda value: float(f"{value:.3g}"))
entries = st.fixed_dictionaries(
    {"strength": numbers, "validation": st.dictionaries(numbers.map(str), numbers, max_size=3)},
    optional={
        "lr": numbers,
        "by": st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=9),
        "seeds": st.just([100, 101]),
        "unfinished": st.just({"strength 3 lr 1": "pruned"}),
        "where": st.just({"tasks": 3}),
    },
)
lists = st.just({"strength": 1.0, "lr": 0.1, "validation": [{"strength": 1.0, "lr": 0.1, "validation": 0.5}] * 2})
places = st.tuples(
    st.sampled_from(benchmarks.names()),
    st.sampled_from(["demo", "small", "paper"]),
    st.sampled_from(methods.names()),
    st.sampled_from([None, Size(1), Size(7), Size(per_task=100), Size(budget="64KB")]),
)


@with_settings(max_examples=15)
@given(st.lists(st.tuples(places, st.one_of(entries, lists)), min_size=1, max_size=4))
def test_a_section_takes_the_place_of_its_like_and_nothing_else(changes: list[tuple[Any, dict[str, Any]]]) -> None:
    """Put into the committed table: all other values and all comments stay, and again it changes nothing."""
    text = TUNED.read_text(encoding="utf-8")
    expected = tomllib.loads(text)
    for (benchmark, scale, method, size), entry in changes:
        keys = locate_section(benchmark, scale, method, size)
        text = with_section(text, keys, entry)
        place = expected
        for key in keys[:-1]:
            place = place.setdefault(key, {})
        of_sizes = {k: v for k, v in place.get(keys[-1], {}).items() if k.startswith("at_")}
        place[keys[-1]] = entry | of_sizes
        assert tomllib.loads(text) == expected
        assert with_section(text, keys, entry) == text
    comments = [line for line in TUNED.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    assert [line for line in text.splitlines() if line.startswith("#")] == comments


def test_comments_and_order_stay(tmp_path: Path) -> None:
    table = tmp_path / "x.toml"
    table.write_text(
        "# the first\n\n[permuted-mnist.demo.ewc]  # of ewc\nstrength = 1\n# within ewc\nlr = 1.0\n\n# of icarl\n"
        "[permuted-mnist.demo.icarl]\nstrength = 2 # two\n\n[mixture.demo]\n# of two\nhat = { strength = 3 }\n"
        "sgd = { lr = 4.0 }\n# the last\n"
    )
    ewc, hat, logit = (("permuted-mnist", "demo", "ewc"), ("mixture", "demo", "hat"), ("mixture", "paper", "fsr-logit"))
    write_sections(table, {ewc: {"strength": 9.0}, hat: {"strength": 8.0}, logit: {"strength": 7.0}})
    assert table.read_text().partition("\n")[2] == (
        "# the first\n\n[permuted-mnist.demo.ewc]\nstrength = 9.0\n\n# of icarl\n"
        "[permuted-mnist.demo.icarl]\nstrength = 2 # two\n\n[mixture.demo]\n# of two\n"
        "sgd = { lr = 4.0 }\n# the last\n\n[mixture.demo.hat]\nstrength = 8.0\n"
        "\n[mixture.paper.fsr-logit]\nstrength = 7.0\n"
    )
    read_table(table)


def test_the_committed_table_goes_through_the_editor_unchanged() -> None:
    text = TUNED.read_text(encoding="utf-8")
    assert tomlkit.dumps(tomlkit.parse(text)) == text


def test_a_new_section_does_not_come_between_a_comment_and_what_it_is_on() -> None:
    text = "[mixture.demo.ewc]\nstrength = 1\n\n# of another\n[permuted-mnist.demo.icarl]\nstrength = 2\n"
    assert with_section(text, ("mixture", "demo", "lwf"), {"strength": 3.0}) == (
        "[mixture.demo.ewc]\nstrength = 1\n\n[mixture.demo.lwf]\nstrength = 3.0\n"
        "\n# of another\n[permuted-mnist.demo.icarl]\nstrength = 2\n"
    )


def test_a_section_after_those_of_its_sizes() -> None:
    """Tables may have them in that order; where a method's own section is new, it goes before them."""
    of_size, own = "[mixture.demo.icarl.at_per_class.1]\nstrength = 1\n", "[mixture.demo.icarl]\nstrength = {}\n"
    keys, entry = ("mixture", "demo", "icarl"), {"strength": 3.0}
    assert with_section(f"{of_size}\n{own.format(2)}", keys, entry) == f"{of_size}\n{own.format(3.0)}"
    assert with_section(f"# a\n\n{of_size}", keys, entry) == f"# a\n\n{own.format(3.0)}\n{of_size}"


def test_a_form_that_cannot_be_replaced_is_left_alone(tmp_path: Path) -> None:
    table = tmp_path / "x.toml"
    text = "[permuted-mnist]\ndemo.ewc.strength = 1\n"
    table.write_text(text)
    with pytest.raises(
        SelfReminderError, match=r"\[permuted-mnist.demo.ewc\] in a form of its own: take it out by hand"
    ):
        write_sections(table, {("permuted-mnist", "demo", "ewc"): {"strength": 2.0}})
    assert table.read_text() == text


def test_tunings_at_once_put_all_they_chose_into_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slowly(text: str, keys: Any, entry: Any, name: str) -> str:
        time.sleep(0.05)  # between reading and writing
        return with_section(text, keys, entry, name)

    monkeypatch.setattr("selfreminder.experiment.tuning.tuned.with_section", slowly)
    table, names = tmp_path / "t.toml", ["ewc", "lwf", "icarl", "fsr-logit"]

    def put(name: str) -> None:
        write_sections(table, {("default", name): {"strength": 1.0}})

    with ThreadPoolExecutor(len(names)) as pool:  # each opens the lock by itself, as processes do
        list(pool.map(put, names))
    assert sorted(read_table(table)["default"]) == sorted(names)


# Whole or not --------------------------------------------------------------------------------------------------


def test_a_table_that_was_cut_or_changed_is_refused(tmp_path: Path) -> None:
    """Wherever it ends, and whichever bit flipped: another strength would be taken unseen."""
    table = tmp_path / "x.toml"
    sections = [locate_section("permuted-mnist", scale, "ewc") for scale in ("demo", "small")]
    write_sections(table, {keys: {"strength": 7.0, "lr": 0.002, "validation": {}} for keys in sections})
    whole, content = read_table(table), table.read_bytes()
    damaged = [content[:length] for length in range(len(content))]
    for place in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[place // 8] ^= 1 << place % 8
        damaged.append(bytes(flipped))
    silent = 0
    for each in damaged:
        table.write_bytes(each)
        _read.cache_clear()
        try:
            found = read_table(table)
        except SelfReminderError as error:
            assert str(table) in str(error)
        else:
            silent += 1
            assert found == whole, each
    assert silent < 400, "flips in the words of the first line alone"


def test_a_table_that_was_edited_on_purpose(tmp_path: Path) -> None:
    table, keys = tmp_path / "x.toml", locate_section("permuted-mnist", "demo", "ewc")
    write_sections(table, {keys: {"strength": 7.0}})
    first, _, rest = table.read_text().partition("\n")
    assert first.startswith("# sha256 of what follows: ")
    table.write_text(f"{first}\n{rest.replace('7', '8')}")
    for change in (lambda: read_table(table), lambda: write_sections(table, {keys: {"strength": 9.0}})):
        with pytest.raises(SelfReminderError, match=r"x\.toml: it was cut short or edited .* take out its first line"):
            change()
    table.write_text(rest.replace("7", "8"))
    assert find_tuned(*keys, table=table) == {"strength": 8.0}
    write_sections(table, {locate_section("permuted-mnist", "demo", "icarl"): {"strength": 1.0}})
    assert table.read_text().startswith("# sha256") and find_tuned(*keys, table=table) == {"strength": 8.0}
    table.write_text(table.read_text().replace("8", "6"))
    seal_table(table)
    assert find_tuned(*keys, table=table) == {"strength": 6.0}


def test_the_table_of_the_package_must_be_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "tuned.toml"
    monkeypatch.setattr("selfreminder.experiment.tuning.tuned.TUNED", table)
    content = TUNED.read_text(encoding="utf-8")
    table.write_text(content, encoding="utf-8")
    assert read_table(table) == read_table(TUNED)
    for part in (content[: len(content) // 2], content[:20], "", content.partition("\n")[2]):
        table.write_text(part, encoding="utf-8")
        _read.cache_clear()
        with pytest.raises(SelfReminderError, match=r"cut short or edited .* `make format` writes its first line anew"):
            read_table(table)


def test_deep_tables(tmp_path: Path) -> None:
    table = tmp_path / "x.toml"
    table.write_text("x = " + "[" * 5000)
    with pytest.raises(SelfReminderError, match="is no TOML"):
        read_table(table)
