"""Who gets the notice: the topmost processes of substance, never a training's own workers."""

import pytest

from jupyter_gpu.broker.engines.notice import Candidate, is_wrapper, program, targets


def tree(*lines):
    """Candidates from (pid, parent, command line); "!" in front: it catches SIGTERM."""
    return [
        Candidate(pid, parent, tuple(words.lstrip("!").split()), words.startswith("!")) for pid, parent, words in lines
    ]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([(2, 1, "python train.py"), (3, 2, "python train.py"), (4, 2, "python train.py")], [2]),
        ([(2, 1, "bash a.sh"), (3, 2, "bash b.sh"), (4, 3, "python -c x"), (5, 4, "python -c x")], [4]),
        ([(2, 1, "sh -c x"), (3, 2, "python train.py"), (4, 2, "tee log")], [3]),
        ([(2, 1, "!bash run.sh"), (3, 2, "python train.py")], [2]),
        (
            [(2, 1, "python /opt/bin/torchrun t.py"), (3, 2, "python -u t.py"), (4, 2, "python t.py"), (5, 4, "w")],
            [3, 4],
        ),
        ([(2, 1, "python -m torch.distributed.run t.py"), (3, 2, "python t.py")], [3]),
        ([(2, 1, "accelerate launch t.py"), (3, 2, "python t.py")], [3]),
        ([(2, 1, "srun -n 2 python t.py"), (3, 2, "python t.py"), (4, 2, "python t.py")], [3, 4]),
        ([(2, 1, "/usr/bin/env nice x"), (3, 2, "time x"), (4, 3, "./solver")], [4]),
        ([(2, 1, "docker run x"), (3, 1, "/sbin/docker-init -- python t.py"), (4, 3, "python t.py"), (5, 4, "w")], [4]),
        (
            [
                (2, 1, "podman run x"),
                (3, 1, "conmon -c x"),
                (4, 3, "/run/podman-init -- sh x"),
                (5, 4, "sh x"),
                (6, 5, "w"),
            ],
            [6],
        ),
        ([(2, 1, "docker run x")], [2]),
        ([(2, 1, "bash a.sh"), (3, 2, "bash b.sh")], [3]),
        ([(2, 1, "cat")], [2]),
        ([(2, 1, "sh -c x"), (3, 2, "cat fifo"), (4, 2, "grep y")], [3, 4]),
        ([(2, 1, "bash x"), (3, 2, "python a.py"), (4, 2, "./b"), (5, 2, "sh y"), (6, 5, "python c.py")], [3, 4, 6]),
        ([(2, 1, "bash x"), (9, 1, "python orphan.py")], [9]),
        ([], []),
    ],
)
def test_targets(lines, expected):
    """Descend through wrappers, stop at substance; filters only if there is nothing else; else the innermost."""
    assert targets(1, tree(*lines)) == expected


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["-bash"], "bash"),
        (["/usr/bin/python3.11", "-X", "dev", "-u", "/x/accelerate", "launch"], "accelerate"),
        (["python", "-Wdefault", "-m", "torch.distributed.run", "t.py"], "-m torch.distributed.run"),
        (["python", "-c", "torchrun"], "python"),
        (["python"], "python"),
        (["pypy3", "t.py"], "t.py"),
        ([], ""),
    ],
)
def test_program(argv, expected):
    """What Python runs counts, not that it is Python."""
    assert program(tuple(argv)) == expected


def test_a_training_called_like_no_wrapper_is_none():
    """Only names that are known to start others are wrappers; a shell with a trap is none."""
    assert not is_wrapper(Candidate(2, 1, ("python", "-m", "mypkg.train")))
    assert is_wrapper(Candidate(2, 1, ("zsh", "x")))
    assert not is_wrapper(Candidate(2, 1, ("zsh", "x"), catches_term=True))
