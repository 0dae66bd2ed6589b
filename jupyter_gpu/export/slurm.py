"""A batch script of Slurm, for `sbatch`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..cli.text import command_line, shell_word
from ..training import EXIT_DO_NOT_RETRY, EXIT_REQUEUE
from ..units import format_bytes
from .work import NAME, One, Work, heading, text

#: What a shell refuses to set, gives another value, splits words by, or what this script means by the name.
_NOT_FOR_SHELLS = (
    *("UID", "EUID", "PPID", "BASHOPTS", "SHELLOPTS", "BASH_VERSINFO", "BASH_ARGV0", "BASHPID", "BASH_COMMAND"),
    *("BASH_SUBSHELL", "DIRSTACK", "FUNCNAME", "EPOCHREALTIME", "EPOCHSECONDS", "GROUPS", "LINENO", "PIPESTATUS"),
    *("RANDOM", "SECONDS", "SRANDOM", "_", "IFS", "command"),
)
_DAY, _HOUR, _MINUTE = 86_400, 3_600, 60
_MIB = 1 << 20
#: The most that sbatch takes for --signal.
_MOST_SIGNAL_SECONDS = 65_535


def slurm(it: Work) -> str:
    """Write the script: what it asks for, its variables, and its command; by `srun` it hears that it must yield."""
    lines = ["#!/bin/bash", *heading(it, *_notes(it)), *(f"#SBATCH {option}" for option in _options(it)), ""]
    lines += [f"cd -- {shell_word(it.folder)} || exit 1", *_variables(it), "", *_command(it), *_end(it)]
    return "\n".join(lines) + "\n"


def _notes(it: Work) -> Iterator[str]:
    if it.ask.device_class is not None:
        yield f"It asked for GPUs of the class {it.ask.device_class!a}: add --constraint, or --gres=gpu:TYPE:N."
    if it.ask.min_free_bytes is not None:
        yield f"It asked for {format_bytes(it.ask.min_free_bytes)} of free memory on each GPU."
    if it.after:
        ids = ":".join(f"ID_OF_{dependency.workload}" for dependency in it.after)
        kind = "afterok" if all(dependency.ok for dependency in it.after) else "afterany"
        yield f"Submit it with: sbatch --dependency={kind}:{ids}"


def _options(it: Work) -> Iterator[str]:
    yield f"--job-name={it.name}"
    yield "--nodes=1"
    yield "--ntasks=1"
    if it.ask.devices:
        yield f"--gres=gpu:{it.ask.devices}"
    if it.ask.cpus is not None:
        yield f"--cpus-per-task={it.ask.cpus}"
    if it.ask.host_memory_bytes is not None:
        yield f"--mem={-(-it.ask.host_memory_bytes // _MIB)}M"
    if it.ask.duration_seconds is not None:
        yield f"--time={_time(it.ask.duration_seconds)}"
    # The same word as here, so many seconds before the end; what is preempted starts anew, as the same job.
    yield f"--signal=TERM@{min(it.grace_seconds, _MOST_SIGNAL_SECONDS)}"
    yield "--requeue"
    yield "--open-mode=append"
    if it.is_array:
        first, last = it.jobs[0].number, it.jobs[-1].number
        yield f"--array={first}-{last}" + (f"%{it.at_most}" if it.at_most else "")
    yield f"--export={','.join(name for name in it.withheld if NAME.fullmatch(name)) or 'NONE'}"


def _time(seconds: int) -> str:
    days, rest = divmod(seconds, _DAY)
    return f"{days}-{rest // _HOUR:02d}:{rest % _HOUR // _MINUTE:02d}:{rest % _MINUTE:02d}"


def _variables(it: Work) -> Iterator[str]:
    yield from _exports(it.common())
    if it.checkpoint_dir is None:
        yield 'export JUPYTER_GPU_CHECKPOINT_DIR="$PWD/.jupyter-gpu/slurm-$SLURM_JOB_ID"'
    else:
        yield f"export JUPYTER_GPU_CHECKPOINT_DIR={shell_word(it.checkpoint_dir)}"
    yield "export JUPYTER_GPU_ATTEMPT=$(( ${SLURM_RESTART_COUNT:-0} + 1 ))"
    if it.ask.duration_seconds is not None:
        yield f"export JUPYTER_GPU_DEADLINE=$(( $(date +%s) + {it.ask.duration_seconds} ))"


def _exports(variables: Mapping[str, str]) -> Iterator[str]:
    for name, value in variables.items():
        if _is_settable(name):
            # Slurm's own commands may stand in no place that the job's variable names.
            more = '"${PATH:+:$PATH}"' if name == "PATH" else ""
            yield f"export {name}={shell_word(value)}{more}"


def _is_settable(name: str) -> bool:
    return NAME.fullmatch(name) is not None and name not in _NOT_FOR_SHELLS


def _command(it: Work) -> Iterator[str]:
    if not it.is_array:
        yield from (*_exports(it.own(it.jobs[0])), f"command=({_words(it, it.jobs[0])})")
        return
    yield 'case "$SLURM_ARRAY_TASK_ID" in'
    for one in it.jobs:
        yield f"{one.number})"
        yield from (f"  {line}" for line in _exports(it.own(one)))
        yield f"  command=({_words(it, one)}) ;;"
    yield "esac"


def _words(it: Work, one: One) -> str:
    """The words of the command, with the variables that only a program of that name can set, and its container."""
    odd = [f"{name}={value}" for name, value in one.environment.items() if not _is_settable(name)]
    argv = [*(["env", *odd] if odd else []), *one.argv]
    return command_line([*_container(it), *argv] if it.spec.image is not None else argv)


def _container(it: Work) -> Iterator[str]:
    image = it.spec.image or ""
    yield from ("apptainer", "exec", "--nv", "--bind", it.folder, "--pwd", it.folder)
    for mount in it.spec.mounts:
        yield from ("--bind", text(mount))
    is_whole = "://" in image or image.endswith(".sif") or image.startswith(("/", "."))
    yield image if is_whole else f"docker://{image}"


def _end(it: Work) -> Iterator[str]:
    yield 'srun --export=ALL --ntasks=1 "${command[@]}"'
    yield "code=$?"
    yield 'case "$code" in'
    yield f'{EXIT_REQUEUE}) scontrol requeue "$SLURM_JOB_ID" ;; # it asks to be started anew'
    if it.spec.retries:
        yield f"0 | {EXIT_DO_NOT_RETRY}) ;;"
        yield f'*) [ "${{SLURM_RESTART_COUNT:-0}}" -ge {it.spec.retries} ] || scontrol requeue "$SLURM_JOB_ID" ;;'
    yield "esac"
    yield 'exit "$code"'
