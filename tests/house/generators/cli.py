"""docs/cli.md, from the commands themselves."""

import inspect

import click

from jupyter_gpu.cli import PROGRAM, VERBS, gpu
from jupyter_gpu.cli.sections import InSections
from jupyter_gpu.errors import TREE

TARGET = "docs/cli.md"

_HEAD = """\
# The command line

<!-- Written by `make generate` from jupyter_gpu/cli/. -->

`jupyter gpu` and `jupyter-gpu` are the same program. It finds this machine's broker, or starts one of your own where
none runs; `jupyter gpu --url URL VERB` asks one elsewhere. Each verb explains itself with `--help`.

{verbs}
## What holds for all

- **Quantities.** Lengths of time are written `45s`, `90m`, `1h30m` or `1d`, memory `500MB` or `20GiB`. A length without
  a unit is refused: a bare 5 means seconds to some and minutes to others.
- **Names.** A workload is named by its number, a GPU by its number or UUID. `cancel`, `pause`, `let-go`, `amend`,
  `keep`, `release` and `wait` take several: each is handled, each failure is told, and the first failure gives the exit
  code.
- **Arrays.** The jobs of an array have numbers that follow one another, and lists have one row for all of them, under
  the first. A number means that job alone; with `--array` the verbs act on the whole array that it is of. What a job
  comes after is different: there the first number means all of the array. In the words of the command and in the values
  of variables `{{name}}` is replaced for the array's own names and `{{index}}`; all other braces stay as they are.
- **Commands run without a shell**, with exactly the words that you wrote; `submit --shell "LINE"` asks for one. What is
  shown of a command can be pasted back into a shell.
- **Scripts are copied** when they are submitted: of `python train.py`, `./train.sh` or `torchrun train.py` the file is
  kept as it is now, and an edit does not change the queued job. Modules (`-m`), data and files over 16 MiB are not
  copied. What no interpreter could find is refused at once.
- **The environment** of a job has what finds programs and packages (PATH, an activated environment, and the like), what
  [it is given](training.md#what-a-job-is-given), and what `--env NAME` or `--env NAME=VALUE` adds. Nothing else that is
  exported in your shell gets there, and secrets only by name.
- **Ctrl-C** ends looking and waiting, never the work (130). Only `reserve` gives its place in line up.
- **`--json`** writes exactly one document of the API to stdout. Errors go to stderr as `{{"code", "message", "hint"}}`,
  one line each, and nothing else does. Where nothing went well stdout stays empty, also of verbs that take several. A
  reservation that stays in line is a document too, with exit code 7. Every verb has `--json`, save `completion`.
- **Colours** are for terminals; NO_COLOR is honoured, and nothing is said by colour alone.

## Exit codes

| code | means |
|---|---|
| 0 | done; for `wait`, `submit --wait` and `submit --follow`: it succeeded, or was given back |
| 1 | anything else; for `wait`, `submit --wait` and `submit --follow`: it ended otherwise |
{codes}| 130 | Ctrl-C |
| 141 | the reader of the output has gone, as with `\\| head` |

[errors.md](errors.md) says what the errors mean. `reserve` ends with 7 where nothing is held in the end, so
`jupyter gpu reserve --no-wait && ...` goes on only with a GPU. `log --follow` shows what a job prints and ends with 0
however the job ends.

## Completion

```
eval "$(jupyter gpu completion bash)"                       # in ~/.bashrc
eval "$(jupyter gpu completion zsh)"                        # in ~/.zshrc
jupyter gpu completion fish > ~/.config/fish/completions/jupyter-gpu.fish
```

It completes `jupyter-gpu`: verbs and options, and from a broker that runs already the numbers of workloads, the UUIDs
of GPUs and the queues. It starts none and says nothing where none answers.
"""


def render() -> str:
    """Write what holds for all, then each verb with its options."""
    ctx = click.Context(gpu, info_name=PROGRAM)
    verbs = "".join(
        f"- **{title}**: " + ", ".join(f"[{verb}](#{verb})" for verb in verbs) + "\n" for title, verbs in VERBS.items()
    )
    parts = [_HEAD.format(verbs=verbs, codes=_codes())]
    for group in VERBS.values():
        parts += [_verb(verb, ctx) for verb in group]
    return "\n".join(parts)


def _codes() -> str:
    by_code: dict[int, list[str]] = {}
    for kind in TREE:
        by_code.setdefault(kind.exit_code, []).append(f"`{kind.code}`")
    return "".join(f"| {code} | {', '.join(words)} |\n" for code, words in sorted(by_code.items()))


def _verb(verb: str, parent: click.Context) -> str:
    command = gpu.get_command(parent, verb)
    ctx = click.Context(command, info_name=verb, parent=parent)
    usage = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    text = inspect.cleandoc(command.help)
    examples = inspect.cleandoc(command.epilog.replace("\b", "")).removeprefix("Examples:") if command.epilog else ""
    shown = f"\n```\n{inspect.cleandoc(examples)}\n```\n" if examples else ""
    return f"## {verb}\n\n```\n{usage}\n```\n\n{text}\n{shown}{_tables(command, ctx)}"


def _tables(command: click.Command, ctx: click.Context) -> str:
    """One table of the options, or one for each section where there are several."""
    found = command.sections(ctx) if isinstance(command, InSections) else {"option": command.params}
    tables = []
    for title, params in found.items():
        rows = [_option(it) for it in params if isinstance(it, click.Option) and not {"--json", "--help"} & {*it.opts}]
        tables += [f"\n| {title} | |\n|---|---|\n{''.join(rows)}"] if rows else []
    return "".join(tables)


def _option(option: click.Option) -> str:
    metavar = "" if option.is_flag else f" {option.metavar or _kind(option.type)}"
    names = ", ".join([*option.opts, *option.secondary_opts])
    default = f" Default: {option.default}." if option.show_default else ""
    return f"| `{names}{metavar}` | {option.help}{default} |\n".replace("<", "&lt;")


def _kind(kind: click.ParamType) -> str:
    return "{" + ",".join(kind.choices) + "}" if isinstance(kind, click.Choice) else kind.name.split()[0].upper()
