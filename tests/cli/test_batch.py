"""What is written for many jobs at once: values, ranges, their product, what comes after what, and slips in them."""

import pytest

from jupyter_gpu.cli.batch import dependencies, notes_of_array, numbers_text, read_array
from jupyter_gpu.errors import InvalidAsk
from jupyter_gpu.model import Dependency


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("lr=0.1,0.01", ["0.1", "0.01"]),
        ("seed=1..5", ["1", "2", "3", "4", "5"]),
        ("seed=5..1", ["5", "4", "3", "2", "1"]),
        ("seed=0..10..5", ["0", "5", "10"]),
        ("seed=10..1..4", ["10", "6", "2"]),
        ("seed=-2..2..2", ["-2", "0", "2"]),
        ("seed=1..3,7", ["1", "2", "3", "7"]),
        ("shard=08..11", ["08", "09", "10", "11"]),
        ("words=one", ["one"]),
        ('words="a,b",c', ["a,b", "c"]),
        ('words="1..3"', ["1..3"]),
        ('words="say ""hi""",x', ['say "hi"', "x"]),
        ("path=../a,./b", ["../a", "./b"]),
        ("v=1..2..3..4", ["1..2..3..4"]),
        ("eq=a=b", ["a=b"]),
        ("empty=,x", ["", "x"]),
        ('layers="[64,64]","[128]"', ["[64,64]", "[128]"]),
    ],
)
def test_the_values_of_one_parameter(text, values):
    """Commas part values, two dots are a range of whole numbers, and what stands in quotes is as it is."""
    name = text.partition("=")[0]

    assert read_array([text]) == tuple({name: value} for value in values)


def test_several_parameters_are_each_with_each():
    """The last one changes fastest, as nested loops in the order of writing would."""
    assert read_array(["lr=0.1,0.01", "seed=1..2"]) == (
        {"lr": "0.1", "seed": "1"},
        {"lr": "0.1", "seed": "2"},
        {"lr": "0.01", "seed": "1"},
        {"lr": "0.01", "seed": "2"},
    )
    assert read_array([]) == ()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lr"], "'lr' gives no values"),
        (["=1,2"], "gives no values"),
        (["l r=1"], "cannot be a parameter"),
        (["index=1..3"], "cannot be a parameter"),
        (["lr=1,2", "lr=3"], "'lr' is given twice"),
        (["seed=1..5..0"], "no step"),
        (['words="a,b'], "quote"),
        (['words="a"b,c'], "quote"),
        (["seed=1..1000000000000"], "1000000000000 jobs"),
        (["a=1..1000", "b=1..1000"], "1000000 jobs"),
        (["lr=0.1,0.1"], "'0.1' twice"),
    ],
)
def test_a_slip_is_told_before_anything_is_queued(words, said):
    """Nothing is queued of what cannot be meant, and an endless range takes no memory."""
    with pytest.raises(InvalidAsk, match=said):
        read_array(words)


def test_what_comes_after_what():
    """Numbers as people write them, several at once; success is asked for by itself, and twice is once."""
    assert dependencies(["12,#13", "14"], ["15", "12"]) == (
        Dependency(workload=12, ok=True),
        Dependency(workload=13),
        Dependency(workload=14),
        Dependency(workload=15, ok=True),
    )


@pytest.mark.parametrize("text", ["", "x", "12,", "12;13", "0"])
def test_what_is_no_number_is_no_dependency(text):
    """A word that names no job is refused, and what would be right is said."""
    with pytest.raises(InvalidAsk, match="no number of a job"):
        dependencies([text], [])


def test_a_parameter_that_nothing_uses_is_told():
    """It is no fault, since a program may read its parameters from the environment; mostly it is a slip."""
    (note,) = notes_of_array(["lr", "seed"], ["python", "train.py", "--lr={lr}"], {})

    assert note == (
        "the parameter seed is used nowhere in the command: write {seed} where it belongs, or read it from "
        "JUPYTER_GPU_PARAMETERS"
    )
    assert notes_of_array(["lr"], ["train"], {"LR": "{lr}"}) == []


def test_a_placeholder_that_is_none_is_told():
    """Braces of a shell or a format are the command's own, and stay as they are."""
    (note,) = notes_of_array(["lr"], ["train", "--lr={lr}", "--seed={sede}", "{index}"], {})
    assert note == "{sede} is no parameter of the array, so it stays as it is; those are {lr}, {index}"

    assert notes_of_array(["lr"], ["sh", "-c", "echo {lr} ${HOME} {} {a,b} {1..3} '{\"a\": 1}'"], {}) == []


@pytest.mark.parametrize(
    ("first", "count", "said"),
    [(12, 1, "number 12"), (12, 2, "numbers 12 and 13"), (12, 10, "numbers 12 to 21")],
)
def test_the_numbers_of_an_array(first, count, said):
    """They follow one another."""
    assert numbers_text(range(first, first + count)) == said
