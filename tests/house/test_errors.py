"""One tree of errors: each says what, why and what now, and has one number for HTTP and one for the shell."""

import pickle
import re
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu import errors
from jupyter_gpu.errors import TREE, BrokerUnavailable, Conflict, GpuError, InvalidAsk, NotFound, from_body


def kebab(kind: type) -> str:
    """Write a class name as a code."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()


def test_the_drawing_is_the_tree():
    """The picture at the top of errors.py shows every class, below its parent, with its status."""
    drawn = re.findall(r"^    ([│ ]*)[├└]── (\w+)(?: \((\d+)\))?", errors.__doc__, flags=re.MULTILINE)

    assert [name for _, name, _ in drawn] == [kind.__name__ for kind in TREE]
    parent = {0: GpuError}
    for (indent, _, status), kind in zip(drawn, TREE, strict=True):
        assert kind.__base__ is parent[len(indent)], kind
        assert not status or kind.http_status == int(status), kind
        parent[len(indent) + 4] = kind


def test_no_error_is_outside_the_tree():
    """Whoever catches GpuError catches everything, and TREE names every class that the module defines."""
    defined = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)}

    assert defined == {GpuError, *TREE}


@pytest.mark.parametrize("kind", TREE)
def test_the_code_is_the_name(kind):
    """A code is the class name in kebab case, so nobody has to look it up."""
    assert kind.code == kebab(kind)


def test_the_shell_numbers_are_settled():
    """Scripts rely on the exit codes: 2 invalid to 8 unavailable; they do not change."""
    assert {kind.__name__: kind.exit_code for kind in TREE} == {
        "InvalidAsk": 2,
        "LimitExceeded": 2,
        "NotAllowed": 3,
        "NotFound": 4,
        "Conflict": 5,
        "LeaseLost": 6,
        "WaitTimeout": 7,
        "BrokerUnavailable": 8,
        "StoreUnavailable": 8,
    }


@pytest.mark.parametrize("kind", TREE)
@pytest.mark.parametrize("hint", [None, "Wait with `%gpu wait 7`."])
def test_an_error_survives_the_wire(kind, hint):
    """What the broker raises, the client raises: same class, same sentence, same advice."""
    sent = kind("No GPU is free: GPU 0 is reserved until 14:05.", hint=hint)

    got = from_body(sent.http_status, sent.to_body())

    assert type(got) is kind
    assert got.to_body() == sent.to_body()


@pytest.mark.parametrize("kind", TREE)
def test_an_error_survives_a_pickle(kind):
    """Errors cross process borders in worker pools; they must not lose their advice there."""
    sent = kind("gone", hint="look elsewhere")

    got = pickle.loads(pickle.dumps(sent))  # noqa: S301 - our own bytes

    assert (type(got), got.to_body(), got.__notes__) == (kind, sent.to_body(), ["look elsewhere"])


def test_a_traceback_shows_the_advice():
    """In a notebook the error alone must say what to do now."""
    error = Conflict("Job 12 has ended.", hint="Submit it again with `jupyter gpu resubmit 12`.")

    assert str(error) == "Job 12 has ended."
    assert "".join(traceback.format_exception(error)).splitlines()[-1] == error.hint


def test_the_standing_advice_is_used_where_none_is_given():
    """An unreachable broker always says how to start one, and a better hint replaces that."""
    assert "`jupyter gpu broker start`" in BrokerUnavailable("No broker answers.").hint
    assert BrokerUnavailable("No broker answers.", hint="Ask ada.").hint == "Ask ada."


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (404, {"message": "Not Found"}, NotFound),
        (422, {"code": "a-code-of-the-next-version", "message": "no"}, InvalidAsk),
        (502, "<html>Bad Gateway</html>", BrokerUnavailable),
        (503, None, BrokerUnavailable),
        (500, {"code": "error", "message": "oops"}, GpuError),
        (418, [], GpuError),
    ],
)
def test_a_foreign_answer_means_the_nearest_error(status, body, kind):
    """Proxies and newer brokers answer with bodies we do not know; the status then decides."""
    assert type(from_body(status, body)) is kind


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(
    status=st.integers(100, 599),
    body=anything | st.fixed_dictionaries({}, optional={"code": anything, "message": anything, "hint": anything}),
)
def test_no_answer_breaks_the_client(status, body):
    """Whatever comes back, the user gets one GpuError with a sentence in it."""
    error = from_body(status, body)

    assert isinstance(error, GpuError)
    assert str(error)
    assert error.hint is None or isinstance(error.hint, str)
