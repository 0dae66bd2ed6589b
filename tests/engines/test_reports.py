"""How far an attempt says it is: a pipe for any program, the bars of its log, and nobody can hold the supervisor up."""

import itertools
import json
import math
import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jupyter_gpu
from jupyter_gpu.broker.engines import files, reports
from jupyter_gpu.broker.engines.reports import LINE_BYTES, MOST_POINTS, Reports, parse, read_bar
from jupyter_gpu.model import Member, Progress
from tests.engines.bench import PYTHON, bench, lives, scenario, until

ROOT = str(Path(jupyter_gpu.__file__).parents[1])
#: A python that finds jupyter_gpu.training and nothing else.
TRAINING = (sys.executable, "-S", "-u", "-c")


@pytest.fixture
def pipe(tmp_path):
    """The reports of an attempt, and its pipe as its user has it."""
    made = Reports(str(tmp_path), {"attempt": 2, "argv": ["x"], "uid": None, "gid": None})
    path = tmp_path / files.PROGRESS_PIPE

    def say(*lines):
        file = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        try:
            return os.write(file, b"".join(lines))
        finally:
            os.close(file)

    yield made, say, tmp_path
    made.close(b"")


def newest(folder):
    """What is kept as the newest, without times and what its pace is counted from."""
    found = files.read(f"{folder}/{files.PROGRESS}")
    return found and {name: value for name, value in found.items() if name not in ("at", "from_at", "from_step")}


def curve(folder):
    """The steps of the curve."""
    return [point["step"] for point in files.read(f"{folder}/{files.CURVE}")["items"]]


# --- from any program ------------------------------------------------------------------------------


@scenario
async def test_a_shell_reports_with_a_line(tmp_path):
    """Any program may: no library is needed. The pipe is gone with the attempt."""
    async with bench(tmp_path) as it:
        await it.hand_over("bash", "-c", """echo '{"step":5,"of":10,"loss":0.5}' > $JUPYTER_GPU_PROGRESS_FILE; read""")
        await it.end()
        folder = it.engine.folder_of(1, 1)
        assert newest(folder) == {"attempt": 1, "step": 5, "of": 10, "numbers": {"loss": 0.5}}
        assert curve(folder) == [5]
        assert not (folder / files.PROGRESS_PIPE).exists()


@scenario
async def test_a_training_is_seen_while_it_runs_and_its_last_word_is_kept(tmp_path):
    """Through `training.report`; the user's own record stays beside the checkpoints."""
    script = textwrap.dedent("""
        import time, os
        from jupyter_gpu import training
        training.report(1, of=3, loss=0.5)
        while not os.path.exists("go"):
            time.sleep(0.01)
        training.report(2, of=3, loss=float("nan"))
        training.report(3, of=3, loss=0.25)
    """)
    async with bench(tmp_path) as it:
        environment = {"PYTHONPATH": ROOT, "PATH": os.environ["PATH"]}
        await it.hand_over(*TRAINING, script, environment=environment)
        folder = it.engine.folder_of(1, 1)
        await until(lambda: newest(folder))
        assert newest(folder) == {"attempt": 1, "step": 1, "of": 3, "numbers": {"loss": 0.5}}
        (it.work / "go").touch()
        await it.end()
        assert newest(folder)["step"] == 3, it.log()
        lines = (it.work / ".jupyter-gpu/job-1/progress.1.jsonl").read_text().splitlines()
        assert json.loads(lines[-1])["step"] == 3


@scenario
async def test_what_says_nothing_leaves_nothing(tmp_path):
    """A short job costs no file."""
    async with bench(tmp_path) as it:
        await it.run("true")
        assert list(it.engine.folder_of(1, 1).glob("*progress*")) == []


@scenario
async def test_the_pipe_is_its_users_and_the_folder_is_not(tmp_path):
    """Only the job's user may write; no other process of the machine's other users."""
    async with bench(tmp_path) as it:
        await it.hand_over("bash", "-c", 'stat -c "%F %a %u" $JUPYTER_GPU_PROGRESS_FILE')
        await it.end()
        assert it.log() == f"fifo 600 {os.geteuid()}\n".encode()


@scenario
async def test_a_job_that_floods_its_pipe_hangs_nobody(tmp_path):
    """The writer waits for us; the order to yield is still taken, and the newest whole line is known."""
    script = textwrap.dedent("""
        import os, itertools
        file = os.open(os.environ["JUPYTER_GPU_PROGRESS_FILE"], os.O_WRONLY)
        os.write(1, b"pid %d\\n" % os.getpid())
        for step in itertools.count(1):
            os.write(file, b'{"step":%d}\\n' % step + b"x" * 3000 + b"\\n")
    """)
    async with bench(tmp_path) as it:
        await it.hand_over(*PYTHON, "-c", script)
        (pid,) = await it.pids(1)
        folder = it.engine.folder_of(1, 1)
        first = (await until(lambda: newest(folder)))["step"]
        await until(lambda: newest(folder)["step"] > first)
        await it.order(0, 0)
        outcome = await it.end()
        assert outcome.signal == 15
        assert not lives(pid)


@scenario
async def test_parameters_and_the_place_in_an_array_are_given(tmp_path):
    """As JSON of the typed values, and by `training.parameters()`; the names cannot come from outside."""
    script = textwrap.dedent("""
        import os
        from jupyter_gpu import training
        place = [os.environ["JUPYTER_GPU_ARRAY" + what] for what in ("", "_INDEX", "_COUNT")]
        print(training.parameters(), place)
    """)
    async with bench(tmp_path) as it:
        outside = {"PYTHONPATH": ROOT, "PATH": os.environ["PATH"], "JUPYTER_GPU_ARRAY": "99"}
        parameters = {"lr": 0.1, "name": "größe", "deep": [1, None, True]}
        member = Member(array=7, index=2, of=5)
        await it.run(*TRAINING, script, environment=outside, parameters=parameters, member=member)
        assert it.log().decode() == f"{parameters} ['7', '2', '5']\n"
        await it.run("bash", "-c", "env | grep -E 'ARRAY|PARAMETERS' || echo none", workload=2, environment=outside)
        assert it.log(2) == b"none\n"


# --- what is taken ---------------------------------------------------------------------------------


def test_a_report_is_a_count_a_whole_and_numbers(pipe):
    """Numbers beside the step or in their own object; what is no number is left out, what is not finite is null."""
    made, say, folder = pipe
    say(b'{"step": 7.0, "of": null, "loss": 1e999, "acc": 0.5, "note": "hi", "ok": true, "numbers": {"lr": 1}}\n')
    made.look(b"")
    assert newest(folder) == {"attempt": 2, "step": 7, "of": None, "numbers": {"lr": 1.0, "loss": None, "acc": 0.5}}


@pytest.mark.parametrize(
    "line",
    [
        b"", b"5/10", b"[1]", b"{", b'{"of": 5}', b'{"step": -1}', b'{"step": true}', b'{"step": "5"}',
        b'{"step": 9007199254740992}', b'{"step": 1e999}', b'{"step": NaN}', b'{"step": [5]}',
        b'{"step": 1, "of": "x"}',
        b'{"step": \xff}', b'{"step": 1, "loss": ' + b"[" * 2000, b"{" * 4000,
        b'{"step": 1, "loss": 0' + b" " * LINE_BYTES + b"}", b'{"step": ' + b"9" * 4000 + b"}",
    ],
)  # fmt: skip
def test_what_is_no_report_is_passed_over(pipe, line):
    """Whatever it is: the reports around it count."""
    made, say, folder = pipe
    assert parse(line) is None
    say(b'{"step": 1}\n', line, b"\n")
    made.look(b"")
    assert newest(folder)["step"] == 1
    say(b'{"step": 2}\n')
    made.look(b"")
    assert newest(folder)["step"] == 2


def test_names_that_could_not_be_shown_are_left_out():
    """Whoever reads them may sit at a terminal; and there are not endlessly many."""
    many = {f"n{number}": number for number in range(100)}
    said = parse(json.dumps({"step": 1, "\x1b[31m": 1, "x" * 100: 2, "": 3, "größe": 4}).encode())
    assert said["numbers"] == {"größe": 4.0}
    assert len(parse(json.dumps({"step": 1, **many}).encode())["numbers"]) == 16


def test_a_line_may_come_in_pieces_and_a_huge_one_is_passed_over(pipe):
    """Up to its end; what follows it counts again."""
    made, say, folder = pipe
    say(b'{"step"')
    made.look(b"")
    say(b": 3}\n")
    made.look(b"")
    assert newest(folder)["step"] == 3
    for _ in range(5):
        say(b"x" * 50_000)
        made.look(b"")
    assert len(made._rest) <= LINE_BYTES
    say(b'x{"step": 4}\n{"step": 5}\n')
    made.look(b"")
    assert newest(folder)["step"] == 5


def test_the_curve_covers_the_whole_attempt_in_bounded_size(pipe):
    """It is thinned out evenly, keeps its beginning, and the file stays small whatever is reported."""
    made, _, folder = pipe
    for step in range(100_000):
        made._take({"step": step, "of": None, "numbers": {f"n{n:030}": 1 / 3 for n in range(16)}})
    made._curve_due = 0.0
    made.look(b"")
    steps = curve(folder)
    assert MOST_POINTS / 2 <= len(steps) < MOST_POINTS
    assert steps[0] == 0
    assert len({b - a for a, b in itertools.pairwise(steps)}) == 1
    assert steps[-1] + steps[1] > 99_999
    assert (folder / files.CURVE).stat().st_size < 2**20


def test_the_curve_is_not_written_at_every_report(pipe, monkeypatch):
    """The newest is, once a look; the curve now and then, and at the end."""
    made, say, folder = pipe
    for step in range(5):
        say(b'{"step": %d}\n' % step)
        made.look(b"")
    assert (newest(folder)["step"], curve(folder)) == (4, [0])
    made.close(b"")
    assert curve(folder) == [0, 1, 2, 3, 4]


def test_a_full_disk_keeps_nothing_and_stops_nothing(pipe, monkeypatch):
    """It is written when there is room again."""
    made, say, folder = pipe

    def write_whole(*_):
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as full:
        full.setattr(reports.files, "write_whole", write_whole)
        say(b'{"step": 1}\n')
        made.look(b"")
    assert newest(folder) is None
    made.look(b"")
    assert (newest(folder)["step"], curve(folder)) == (1, [1])


def test_where_no_pipe_can_be_made_the_job_does_without(tmp_path):
    """A file system without pipes, or without room for one."""
    made = Reports(str(tmp_path / "absent"), {"attempt": 1, "argv": ["x"], "uid": None, "gid": None})
    made.look(b"")
    made.close(b"")


def test_another_users_job_gets_a_pipe_of_its_own(tmp_path):
    """As root it is given away, and the mode lets nobody else in."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    made = Reports(str(tmp_path), {"attempt": 1, "argv": ["x"], "uid": 4711, "gid": 4712})
    found = (tmp_path / files.PROGRESS_PIPE).stat()
    assert (found.st_uid, found.st_gid, stat.filemode(found.st_mode)) == (4711, 4712, "prw-------")
    made.close(b"")


# --- from the log ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "step", "of"),
    [
        ("  45%|████▌     | 9/20 [00:01<00:01,  8.20it/s]", 9, 20),
        ("Executing:  50%|█████     | 3/6 [00:04<00:03,  1.02s/cell]", 3, 6),
        ("Epoch 3: 100%|##########| 938/938 [00:10<00:00, 93.8it/s, loss=0.1]", 938, 938),
        (" 90%|█████████ | 9.00k/10.0k [00:01<00:00, 8.20kit/s]", 9000, 10_000),
        ("7/200000 it ████", 7, 200_000),
        ("12/200 [=>............................] - ETA: 5s - loss: 0.3", 12, 200),
        (
            "\x1b[1m 12/200\x1b[0m \x1b[32m━━\x1b[0m\x1b[37m━━━━━━\x1b[0m \x1b[1m5s\x1b[0m 20ms/step - loss: 0.3",
            12,
            200,
        ),
    ],
)
def test_a_bar_is_read(pipe, line, step, of):
    """As tqdm, papermill, Lightning and Keras draw it: nteract/papermill#765."""
    made, _, folder = pipe
    made.look(f"Epoch 1/3\n\r  0%| | 0/{of} [00:00<?, ?it/s]\r{line}".encode())
    assert newest(folder) == {"attempt": 2, "step": step, "of": of, "numbers": {}}


@pytest.mark.parametrize(
    "line", ["", "3/4 of it", "50%", "12/200", "see [1/2] there", "|| 1/2 [", "9" * 2000 + "/1 [=", "\x1b" * 2000]
)
def test_what_is_no_bar_is_none(line):
    """Dates, ratios and paths in a log are no progress."""
    assert read_bar(line) is None


def test_who_reports_is_believed_before_any_bar(pipe):
    """A bar beside the reports may be of anything."""
    made, say, folder = pipe
    bar = b"\r 50%|##  | 1/2 [00:01<00:01, 1it/s]"
    made.look(bar)
    assert newest(folder)["of"] == 2
    say(b'{"step": 30, "of": 90}\n')
    made.look(bar)
    made.look(b"\r100%|####| 2/2 [00:01<00:01, 1it/s]")
    assert newest(folder)["of"] == 90
    assert curve(folder) == [1]


def test_what_outlives_the_attempt_adds_nothing_to_it(pipe):
    """The last word is that of the main process, and the next attempt of the same supervisor has its own."""
    made, say, folder = pipe
    say(b'{"step": 1}\n')
    made.look(b"")
    made.close(b"")
    made.look(b"\r 50%|##  | 1/2 [00:01<00:01, 1it/s]")
    assert newest(folder) == {"attempt": 2, "step": 1, "of": None, "numbers": {}}
    other = folder / "other"
    other.mkdir()
    Reports(str(other), {"attempt": 1, "argv": ["x"], "uid": None, "gid": None}).close(b"")
    assert list(other.iterdir()) == []


def test_the_pace_of_an_attempt_is_counted_from_its_own_first_word(pipe):
    """An attempt that resumes does not begin at 0, and a second loop does not begin where the first one ended."""
    made, say, folder = pipe
    said = []
    for step in (30, 31, 35, 2, 5):
        say(b'{"step": %d, "of": 50}\n' % step)
        made.look(b"")
        said.append(files.read(f"{folder}/{files.PROGRESS}").get("from_step"))

    assert said == [None, 30, 30, None, 2]
    assert all("from_step" not in point for point in made._points)


def test_a_bar_that_stands_still_is_one_point(pipe):
    """A job that hangs does not draw a curve."""
    made, _, _ = pipe
    for _ in range(5):
        made.look(b"\r 50%|##  | 1/2 [00:01<00:01, 1it/s]")
    assert len(made._points) == 1


@scenario
async def test_the_bar_of_a_real_job_is_seen(tmp_path):
    """Real tqdm, where it is installed; whatever the buffering, for a job's output is unbuffered."""
    pytest.importorskip("tqdm")
    script = textwrap.dedent("""
        import os, time, tqdm
        for i in tqdm.tqdm(range(4), mininterval=0):
            while i == 2 and not os.path.exists("go"):
                time.sleep(0.01)
    """)
    async with bench(tmp_path) as it:
        await it.hand_over(sys.executable, "-c", script)
        folder = it.engine.folder_of(1, 1)
        await until(lambda: (newest(folder) or {}).get("step") == 2)
        (it.work / "go").touch()
        await it.end()
        assert newest(folder) == {"attempt": 1, "step": 4, "of": 4, "numbers": {}}


# --- the library -----------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["absent/pipe", "nobody-reads"])
def test_a_report_that_nobody_takes_costs_a_training_nothing(tmp_path, where):
    """No wait, no message, no exception."""
    os.mkfifo(tmp_path / "nobody-reads")
    script = "from jupyter_gpu import training; training.report(1, of=2, **{'n%d' % n: n for n in range(2000)})"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=True,
        env={"PYTHONPATH": ROOT, "JUPYTER_GPU_PROGRESS_FILE": str(tmp_path / where)},
    )  # fmt: skip
    assert done.stderr == ""


def test_a_report_too_long_for_the_pipe_loses_its_numbers_and_not_its_step(pipe):
    """A line is written whole or not at all, since several processes of a training may report."""
    _, _, folder = pipe
    script = "from jupyter_gpu import training; training.report(1, of=2, **{'n%d' % n: n for n in range(2000)})"
    subprocess.run(
        [sys.executable, "-c", script], cwd=folder, timeout=30, check=True,
        env={"PYTHONPATH": ROOT, "JUPYTER_GPU_PROGRESS_FILE": str(folder / files.PROGRESS_PIPE)},
    )  # fmt: skip
    pipe[0].look(b"")
    assert newest(folder) == {"attempt": 2, "step": 1, "of": 2, "numbers": {}}


# --- whatever is said ------------------------------------------------------------------------------

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
)
_REPORT = st.fixed_dictionaries({"step": _JSON}, optional={"of": _JSON, "numbers": _JSON, "loss": _JSON})
_LINE = st.binary(max_size=60) | (_JSON | _REPORT).map(lambda said: json.dumps(said).encode())
_BARS = st.text(alphabet="0123456789/%|[=>.#█━ kMGit\r\n\x1b;m", max_size=200).map(str.encode)


@settings(max_examples=300, deadline=None)
@given(line=_LINE, bars=_BARS | st.binary(max_size=100))
def test_nothing_that_is_said_can_end_the_supervisor(line, bars):
    """It is the only one who knows how its job ends; and what is kept is what the broker can read."""
    for found in (parse(line), read_bar(bars.decode("utf-8", "replace"))):
        if found is not None:
            kept = msgspec.convert(json.loads(json.dumps({"at": 0.0, "attempt": 1, **found})), Progress)
            assert 0 <= kept.step < 2**53
            assert kept.of is None or 0 <= kept.of < 2**53
            assert all(number is None or math.isfinite(number) for number in kept.numbers.values())
