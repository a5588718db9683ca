import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as trials
from hypothesis import strategies as st

from selfreminder import methods
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import Size
from selfreminder.experiment.catalogue import method_facts, uses
from selfreminder.experiment.comparison import Comparison
from selfreminder.experiment.folder import label, varying
from selfreminder.experiment.run import check
from selfreminder.experiment.spec import Experiment
from selfreminder.experiment.sweep import Sweep, read_sweep

BASE = """
benchmark = "permuted-mnist"
data = "embedded-mnist"
tasks = 2
"""


@pytest.fixture
def sweep(tmp_path: Path) -> Any:
    def read(text: str, fixed: tuple[str, ...] = (), swept: tuple[str, ...] = ()) -> Sweep:
        path = tmp_path / "grid.toml"
        path.write_text(text, encoding="utf-8")
        return read_sweep(path, fixed, swept)

    return read


def test_options_are_swept(sweep: Any) -> None:
    text = BASE + 'method = "lwf"\n[options]\ntemperature = 3.0\n'
    found = sweep(text, (), ("options.temperature=1.5,2.0",)).experiments
    assert [e.options for e in found] == [{"temperature": 1.5}, {"temperature": 2.0}]
    (one,) = sweep(text, ("options.temperature=4.0",)).experiments
    assert one.options == {"temperature": 4.0}
    with pytest.raises(SelfReminderError, match="unknown option of lwf 'heat'"):
        _ = sweep(text, (), ("options.heat=1",)).experiments
    with pytest.raises(SelfReminderError, match="unknown field 'option"):
        sweep(text, (), ("option.temperature=1",))


def test_fields_are_the_experiments(sweep: Any) -> None:
    text = BASE + 'method = "ewc"\nstrength = 30\nseed = 4\n[options]\nfisher = "empirical"\n'
    (one,) = sweep(text).experiments
    options = {"fisher": "empirical"}
    known = {"benchmark": "permuted-mnist", "data": "embedded-mnist", "tasks": 2, "options": options}
    assert one == Experiment(method="ewc", strength=30.0, seed=4, **known)
    assert one.key == Experiment(method="ewc", strength=30.0, seed=4, **known).key


def test_the_product_is_taken_seed_by_seed(sweep: Any) -> None:
    found = sweep(BASE + 'seeds = 2\n[grid]\nmethod = ["adam", "lwf"]\nepochs = [1, 2]\n').experiments
    assert [(e.seed, e.method, e.epochs) for e in found] == [
        (seed, method, epochs) for seed in (0, 1) for method in ("adam", "lwf") for epochs in (1, 2)
    ]


def test_runs_on_the_same_data_follow_each_other(sweep: Any) -> None:
    found = sweep(BASE + '[grid]\nmethod = ["adam", "sgd"]\ntasks = [2, 3]\nseed = [0, 7]\n').experiments
    assert [(e.seed, e.tasks) for e in found] == [(0, 2), (0, 2), (0, 3), (0, 3), (7, 2), (7, 2), (7, 3), (7, 3)]


def test_what_is_said_for_one_method_goes_first(sweep: Any) -> None:
    text = (
        BASE + 'epochs = 9\n[grid]\nmethod = ["ewc", "lwf"]\nstrength = [1, 2]\n[methods.ewc]\nstrength = 5\nepochs = 3'
    )
    found = sweep(text).experiments
    assert [(e.method, e.strength, e.epochs) for e in found] == [("ewc", 5.0, 3), ("lwf", 1.0, 9), ("lwf", 2.0, 9)]
    own = sweep(BASE + 'method = "icarl"\nper_task = 5\n[methods.icarl]\nstrength = [5, 6]\nper_class = 3').experiments
    assert [(e.strength, e.per_class, e.per_task) for e in own] == [(5.0, 3, None), (6.0, 3, None)]


def test_a_sweep_that_does_not_concern_a_method_is_one_run(sweep: Any) -> None:
    text = BASE + '[grid]\nmethod = ["adam", "ewc", "fsr-logit"]\nper_class = [1, 2]\nstrength = [1, 2]'
    found = sweep(text).experiments
    assert [e.method for e in found] == ["adam"] + ["ewc"] * 2 + ["fsr-logit"] * 4
    fixed = sweep(BASE + 'strength = 7\nper_class = 9\n[grid]\nmethod = ["adam", "icarl"]').experiments
    assert fixed[0] == sweep(BASE + 'method = "adam"').experiments[0]
    assert (fixed[1].strength, fixed[1].per_class) == (7.0, 9)
    names = varying(found)
    assert names == ["strength", "per_class"]
    labels = [label(e, names) for e in found]
    assert labels[:2] == ["adam seed 0", "ewc strength 1 seed 0"]
    assert labels[-1] == "fsr-logit strength 2 per_class 2 seed 0"
    assert len(set(labels)) == len(labels)


def test_sizes_replace_each_other(sweep: Any) -> None:
    found = sweep(BASE + 'method = "fsr-logit"\nper_class = 3\n[grid]\nbudget = ["64KB", 128000]').experiments
    assert [(e.per_class, e.budget) for e in found] == [(None, "64000"), (None, "128000")]
    with pytest.raises(SelfReminderError, match="exactly one of"):
        _ = sweep(BASE + 'method = "fsr-logit"\nper_class = 3\nper_task = 3').experiments


@pytest.mark.parametrize("scale", ["demo", "small"])
@pytest.mark.parametrize("name", ["permuted-mnist", "split-cifar10"])
def test_a_scale_is_that_of_a_comparison(sweep: Any, name: str, scale: str) -> None:
    """Seeds, methods, data, tuned strengths: the runs are the same ones."""
    found = sweep(f'benchmark = "{name}"\nscale = "{scale}"')
    comparison = Comparison(benchmark=name, scale=scale)
    assert [e.key for e in found.experiments] == [e.key for e in comparison.experiments]
    assert found.find_untuned(found.experiments) == comparison.untuned
    one = sweep(f'benchmark = "{name}"\nscale = "{scale}"\nmethod = "fsr-logit"\nper_class = 1\nseeds = 1\nepochs = 3')
    of_size = Comparison(benchmark=name, scale=scale, methods=("fsr-logit",), seeds=1, size=Size(1), epochs=3)
    assert one.experiments[0].key == of_size.experiments[0].key
    fewer = sweep(f'benchmark = "{name}"\nscale = "{scale}"\nseeds = 1\ntasks = 2').experiments
    assert [e.key for e in fewer] == [
        e.key for e in Comparison(benchmark=name, scale=scale, seeds=1, tasks=2).experiments
    ]


def test_fewer_tasks_of_a_split_stream_are_its_first() -> None:
    of_tasks = {tasks: Comparison(benchmark="split-cifar10", tasks=tasks).experiments[0] for tasks in (2, 5, 10)}
    assert {tasks: e.split_into for tasks, e in of_tasks.items()} == {2: 5, 5: None, 10: None}


def test_what_the_file_says_goes_before_the_scale(sweep: Any) -> None:
    text = 'benchmark = "mixture"\nscale = "demo"\nseeds = 1\nimages = "none"\nmethod = "ewc"\n'
    assert sweep(text).find_untuned(sweep(text).experiments) == ["ewc: defaults"]
    chosen = sweep(text + "strength = 7")
    assert chosen.find_untuned(chosen.experiments) == []
    assert (chosen.experiments[0].strength, chosen.experiments[0].images) == (7.0, None)


def test_the_command_line_goes_before_the_file(sweep: Any) -> None:
    text = BASE + 'epochs = 9\nper_class = 2\nseeds = 3\n[grid]\nmethod = ["ewc", "lwf"]\n[methods.ewc]\nstrength = 5'
    found = sweep(text, ("epochs=1", "method=fsr-logit", "seeds=1"), ("strength=0.1, 1", "budget=64KB,128KB"))
    assert [(e.method, e.strength, e.budget, e.per_class, e.epochs) for e in found.experiments] == [
        ("fsr-logit", strength, budget, None, 1) for strength in (0.1, 1.0) for budget in ("64000", "128000")
    ]
    assert [e.strength for e in sweep(text, ("strength=7", "method=ewc", "seeds=1")).experiments] == [7.0]
    lwf = ("method=lwf", "plateau=true", "options={temperature = 3}", "lr=1e-3")
    found = sweep(text, lwf, ("seed=7,8",))
    assert {e.seed for e in found.experiments} == {7, 8}
    sizes = text.replace("[methods", "per_class = [2, 3]\n[methods")
    assert len(sweep(sizes, ("method=adam", "seeds=1")).experiments) == 1, "what it has no use for is of the others"
    options = '{"temperature": 3}'
    assert {(e.plateau, e.lr, json.dumps(e.options)) for e in found.experiments} == {(True, 0.001, options)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epochs = \nlr = 1", r"grid.toml is no TOML: Invalid value \(at line 4, column 10\)"),
        ("epocs = 3", r"grid.toml: unknown key 'epocs': did you mean 'epochs'"),
        ("epochs = 'three'", r'grid.toml: epochs is "three": it must be a whole number$'),
        ("epochs = true", r"epochs is true: it must be a whole number"),
        ("epochs = 2.5", r"epochs is 2.5: it must be a whole number"),
        ("epochs = 0\nmethod = 'adam'", r"grid.toml: epochs is 0: it must be at least 1"),
        ("epochs = [1, 2]", r"epochs is a list: what is swept goes under \[grid\]"),
        ("images = 'some'", r'images is "some": it must be a whole number, or "none"'),
        ("plateau = 1", r"plateau is 1: it must be true or false"),
        ("strength = 'much'", r'strength is "much": it must be a number, or "none"'),
        ("method = 3", r"method is 3: it must be text"),
        (
            "method = 'adam'\n[methods.ewc]\nlr = 1",
            r"\[methods.ewc\] is of a method that is not run: name it in \[grid\]",
        ),
        ("method = 'adam'\n[methods.adam]\nstrength = 1", r"\[methods.adam\]: adam has no strength"),
        ("method = 'adam'\noptimizer = 'Adam'", r"unknown optimizer 'Adam': did you mean 'adam'"),
        ("method = 'ewx'", r"grid.toml: unknown method 'ewx': did you mean 'ewc'"),
        ("budget = 'much'", r"'much' is no number of bytes"),
        ("options = 3", r"options is 3: it must be a table"),
        ("[options]\nsince = 2020-01-01", r"options has a date or a time"),
        ("method = 'hat'\n[options]\ns_maxx = 3", r"grid.toml: unknown option of hat 's_maxx': did you mean 's_max'"),
        ("method = 'fsr-logit'\noptions = { clip = 1 }", r"unknown option of fsr-logit 'clip': known: mode$"),
        ("method = 'lwf'\noptions = { temperature = 'hot' }", r"lwf: temperature is 'hot': it must be a number"),
        ("method = 'icarl'\noptions = { literal = 1 }", r"icarl: literal is 1: it must be true or false"),
        ("method = 'ewc'\noptions = { fisher = 1 }", r"ewc: fisher is 1: it must be text"),
        ("method = 'generative-replay'\noptions = { hidden = 9.5 }", r"hidden is 9.5: it must be a whole number"),
        ("method = 'adam'\noptions = { clip = 1 }", r"adam has no options: 'clip' is none"),
        ("scale = 'smal'\nmethod = 'ewc'", r"unknown scale 'smal': did you mean 'small'"),
        ("scale = 3", r"scale is 3: it must be text"),
        ("seeds = 0", r"seeds is 0: it must be at least 1"),
        ("seeds = 2\nseed = 1", r"both seeds and seed are given"),
        ("grid = 3", r"grid is 3: it must be a table"),
        ("methods = 3", r"methods is 3: it must be a table"),
        ("", r"grid.toml: method is missing"),
        ("[grid]\nstrenght = [1]", r"grid.toml: \[grid\]: unknown field 'strenght': did you mean 'strength'"),
        ("[grid]\nstrength = []", r"\[grid\]: strength is an empty list"),
        ("[grid]\nstrength = [1, 'x']", r'\[grid\]: strength is "x": it must be a number'),
        (
            "[grid]\nmethod = ['adam', 'ewc']\nper_class = [1, 2]",
            r"\[grid\]: per_class is of no use to adam, ewc",
        ),
        ("[grid]\nseeds = 2\nseed = [1]", r"\[grid\]: both seeds and seed are given"),
        ("[methods.ewx]\nlr = 1", r"unknown method 'ewx': did you mean 'ewc'"),
        ("[methods.ewc]\nstrenght = 1", r"\[methods.ewc\]: unknown field 'strenght': did you mean 'strength'"),
        ("[methods.ewc]\nmethod = 'lwf'", r"\[methods.ewc\]: unknown field 'method'"),
        ("[methods]\newc = 1", r"\[methods.ewc\]: it is 1: it must be a table"),
    ],
)
def test_mistakes(sweep: Any, text: str, message: str) -> None:
    with pytest.raises(SelfReminderError, match=message):
        _ = sweep(BASE.strip() + "\n" + text).experiments


@pytest.mark.parametrize(
    ("fixed", "swept", "message"),
    [
        (("epochs",), (), "--set epochs: write a field and its value"),
        (("epocs=3",), (), "--set epocs=3: unknown field 'epocs': did you mean 'epochs'"),
        (("epochs=x",), (), '--set epochs=x: epochs is "x": it must be a whole number'),
        (("epochs=1.5",), (), "epochs is 1.5: it must be a whole number"),
        ((), ("strength=1,x",), '--sweep strength=1,x: strength is "x"'),
        ((), ("seeds=1,2",), "--sweep seeds=1,2: unknown field 'seeds': did you mean 'seed'"),
        (("epochs=0",), (), "epochs is 0"),
        (("method=adam",), ("strength=1,2",), r"\[grid\]: strength is of no use to adam"),
        (("method=ewx",), (), "unknown method 'ewx': did you mean 'ewc'"),
        ((), ("method=ewx,adam",), "unknown method 'ewx': did you mean 'ewc'"),
    ],
)
def test_mistakes_on_the_command_line(sweep: Any, fixed: tuple[str], swept: tuple[str], message: str) -> None:
    with pytest.raises(SelfReminderError, match=message):
        _ = sweep(BASE + 'method = "adam"', fixed, swept).experiments


def test_the_documented_grid(sweep: Any) -> None:
    text = (Path(__file__).parents[2] / "docs" / "grids.md").read_text(encoding="utf-8")
    spec = text.partition("```toml\n")[2].partition("```")[0]
    found = sweep(spec).experiments
    assert f"# {len(found)} runs into runs/grid" in text
    assert varying(found) == ["strength", "per_class"]


def test_not_text_at_all(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SelfReminderError, match=r"x.toml is no TOML"):
        read_sweep(tmp_path / "x.toml")


AXES = {
    "method": ("adam", "ewc", "fsr-logit"),
    "seed": (0, 5),
    "strength": (0.1, 1.0),
    "per_class": (1, 2),
    "epochs": (1, 2),
}
parts = st.fixed_dictionaries({k: st.lists(st.sampled_from(v), min_size=1, unique=True) for k, v in AXES.items()})


@trials(max_examples=20)
@given(parts, parts)
def test_a_grid_that_grows_keeps_its_runs(small: dict[str, list[Any]], more: dict[str, list[Any]]) -> None:
    """The runs are the product over the fields that a method uses, each once; more values only add to them."""
    small["method"] = sorted({"fsr-logit", *small["method"]})  # which has a use for every field

    def grid(axes: dict[str, list[Any]]) -> Sweep:
        fixed = {"benchmark": "permuted-mnist", "data": "embedded-mnist"}
        return Sweep("x", fixed, {name: tuple(values) for name, values in axes.items()}, {})

    keys = [experiment.key for experiment in grid(small).experiments]
    assert len(keys) == len(set(keys))
    expected = 0
    for method in set(small["method"]):
        sizes = [len(set(v)) for name, v in small.items() if name != "method" and uses(method, name)]
        runs = 1
        for size in sizes:
            runs *= size
        expected += runs
    assert len(keys) == expected
    grown = {name: small[name] + more[name] for name in small}
    assert set(keys) <= {experiment.key for experiment in grid(grown).experiments}


@pytest.mark.parametrize("name", methods.names())
def test_what_a_method_uses_is_what_its_class_has(name: str) -> None:
    assert {field.name for field in fields(methods.method_class(name))} == set(method_facts(name).settings)
    has = methods.method_class(name).__dataclass_fields__
    for field in ("strength", "select", "codec", "logit_codec", "memory_batch", "over_tasks"):
        assert uses(name, field) == (field in has)
    assert uses(name, "budget") == ("size" in has)


def test_what_varies() -> None:
    """A strength that each method has of its own does not; one that is swept does."""
    runs = Comparison(benchmark="permuted-mnist", scale="demo").experiments
    assert varying(runs) == []
    assert varying([*runs, replace(runs[0], lr=3.0)]) == ["lr"]


@pytest.mark.parametrize(
    "text",
    [
        "width = 1e6",
        "width = nan",
        "width = inf",
        f"width = 1{'0' * 400}",
        f"epochs = 1{'0' * 400}",
        f"epochs = 1{'0' * 5000}",
        "images = -1",
        f"images = {2**63}",
        "lr = inf",
        "strength = nan",
        "options = " + "[" * 100_000,
        "options = " + "[" * 300 + "]" * 300,
    ],
)
def test_odd_numbers_are_refused_before_training_in_one_line(tmp_path: Path, text: str) -> None:
    """By the spec itself, or when its run begins."""
    (tmp_path / "grid.toml").write_text(BASE + f'method = "ewc"\n{text}\n')
    with pytest.raises(SelfReminderError) as raised:
        check(read_sweep(tmp_path / "grid.toml").experiments[0])
    assert len(str(raised.value)) < 400 and "\n" not in str(raised.value)
