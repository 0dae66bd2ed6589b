"""What is written down of a job at its submission: the state of its repository and its Python, and never a secret."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpu import recording, recording_git, recording_python, spawn
from jupyter_gpu.model import unpack_bytes
from jupyter_gpu.recording import Recorded, record


class Repository:
    """A git repository of one committed file, train.py."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir()
        self.git("init", "-q", "-b", "main")
        (folder / "train.py").write_text("print(1)\nprint(2)\n")
        self.git("add", "train.py")
        self.commit()

    def git(self, *words: str) -> str:
        """Run git in it, as its owner would."""
        told = ["-c", "user.name=ada", "-c", "user.email=ada@lab"]
        done = subprocess.run(["git", *told, *words], cwd=self.folder, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self) -> None:
        """Commit what is staged."""
        self.git("commit", "-q", "--no-verify", "-m", "as it is")

    def record(self, **environ: str) -> Recorded:
        """Record a job of this folder."""
        own = {"PATH": os.environ["PATH"], "HOME": str(self.folder.parent)}
        return record(str(self.folder), ["true"], own | environ)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A repository without changes."""
    return Repository(tmp_path / "work")


def diff_of(found: Recorded) -> str:
    """The text that was kept of the differences; empty where none was."""
    return next((it.content.decode() for it in found.record if it.name == "diff"), "")


# -- the repository


def test_the_commit_and_branch_are_recorded_of_any_folder_in_a_repository(repository):
    """A clean one is said to be clean, and no diff is kept."""
    (repository.folder / "sub").mkdir()
    found = record(str(repository.folder / "sub"), ["true"], os.environ)
    words = found.words
    assert words["git_commit"] == repository.git("rev-parse", "HEAD")
    assert (words["git_branch"], words["git_root"], words["git_dirty"]) == ("main", str(repository.folder), "no")
    assert diff_of(found) == ""


def test_no_branch_is_recorded_where_a_commit_is_checked_out_by_itself(repository):
    """As in the middle of a bisection."""
    repository.git("checkout", "-q", "--detach")
    assert "git_branch" not in repository.record().words


def test_the_diff_leads_from_the_commit_to_what_was_submitted(repository, tmp_path):
    """With what is staged and what is not; `git apply` takes it as it was kept, and a new file is named at its head."""
    (repository.folder / "train.py").write_text("print(1)\nprint(3)\nprint(4)\n")
    (repository.folder / "net.py").write_text("net\n")
    repository.git("add", "net.py")
    (repository.folder / "notes.txt").write_text("mine")
    found = repository.record()
    assert found.words["git_dirty"] == "2 files, +3 -1 lines, 1 untracked"
    assert "# not known to git, and not in here: notes.txt\n" in diff_of(found)

    repository.git("worktree", "add", "-q", str(tmp_path / "again"), found.words["git_commit"])
    (tmp_path / "kept.diff").write_text(diff_of(found))
    subprocess.run(["git", "apply", str(tmp_path / "kept.diff")], cwd=tmp_path / "again", check=True)
    assert (tmp_path / "again" / "train.py").read_bytes() == (repository.folder / "train.py").read_bytes()
    assert (tmp_path / "again" / "net.py").read_text() == "net\n"


def test_lines_that_look_like_a_diff_of_their_own_are_counted_once(repository):
    """A removed comment of SQL begins with three dashes."""
    (repository.folder / "q.sql").write_text("-- a\n++ b\n")
    repository.git("add", "q.sql")
    repository.commit()
    (repository.folder / "q.sql").write_text("++ c\n")
    assert repository.record().words["git_dirty"] == "1 file, +1 -2 lines"


def test_before_the_first_commit_the_diff_is_all_that_is_staged(tmp_path):
    """There is no commit to name."""
    (tmp_path / "new").mkdir()
    subprocess.run(["git", "init", "-q", "-b", "main", str(tmp_path / "new")], check=True)
    (tmp_path / "new" / "a.py").write_text("a\n")
    subprocess.run(["git", "add", "a.py"], cwd=tmp_path / "new", check=True)
    found = record(str(tmp_path / "new"), ["true"], os.environ)
    assert "git_commit" not in found.words
    assert (found.words["git_branch"], found.words["git_dirty"]) == ("main", "1 file, +1 -0 lines")
    assert "+a" in diff_of(found)


def test_a_binary_file_is_named_and_not_kept(repository):
    """A diff is for reading."""
    (repository.folder / "model.bin").write_bytes(bytes(range(256)) * 100)
    repository.git("add", "model.bin")
    found = repository.record()
    assert "Binary files /dev/null and b/model.bin differ" in diff_of(found)
    assert len(diff_of(found)) < 1000


def test_a_long_diff_is_cut_and_that_is_told(repository, monkeypatch):
    """At the end of a line; what is kept says where it ends, and the words say that it was cut."""
    monkeypatch.setattr(recording_git, "MOST_DIFF_BYTES", 2048)
    (repository.folder / "train.py").write_text("".join(f"line {n}\n" for n in range(10_000)))
    found = repository.record()
    assert diff_of(found).endswith("\n# cut here: the difference is longer\n")
    assert len(diff_of(found)) < 2500
    assert found.words["git_note"] == "the difference is longer than 2KiB and was cut there"


def test_bytes_that_are_no_text_stay_as_they_are(repository):
    """In the contents of a file as in its name."""
    (repository.folder / "train.py").write_bytes(b"caf\xe9\n")
    Path(os.fsdecode(os.fsencode(repository.folder) + b"/caf\xe9")).write_text("")
    (kept,) = repository.record().record
    assert b"+caf\xe9\n" in kept.content
    assert b"not in here: caf\xe9\n" in kept.content


def test_our_own_checkpoints_are_no_change(repository):
    """They lie in the folder of submission, and every second submission would look dirty."""
    (repository.folder / ".jupyter-gpu" / "12").mkdir(parents=True)
    (repository.folder / ".jupyter-gpu" / "12" / "step").write_text("")
    assert repository.record().words["git_dirty"] == "no"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://ada:s3cret@git.lab/x.git", "https://git.lab/x.git"),
        ("https://ghp_token@github.com/lab/x", "https://github.com/lab/x"),
        ("https://git.lab/x.git?private_token=s3cret#s3cret", "https://git.lab/x.git"),
        ("https://ada:s3cret@w@git.lab/x.git", "https://git.lab/x.git"),
        ("ssh://git@git.lab:22/x.git", "ssh://git@git.lab:22/x.git"),
        ("ssh://git:s3cret@git.lab/x.git", "ssh://git.lab/x.git"),
        ("git@github.com:lab/x.git", "git@github.com:lab/x.git"),
        ("/srv/git/x.git", "/srv/git/x.git"),
    ],
)
def test_a_remote_is_recorded_without_whoever_may_enter_it(repository, url, shown):
    """A token in the address of a remote is common, and would stand in every record for good."""
    repository.git("remote", "add", "origin", url)
    found = repository.record()
    assert found.words["git_remote"] == shown
    assert "s3cret" not in repr(found)


def test_the_remote_is_that_of_the_branch(repository):
    """A fork and what it was forked from are both there."""
    repository.git("remote", "add", "origin", "https://git.lab/lab.git")
    repository.git("remote", "add", "mine", "https://git.lab/ada.git")
    repository.git("config", "branch.main.remote", "mine")
    assert repository.record().words["git_remote"] == "https://git.lab/ada.git"


def test_nothing_that_a_repository_names_is_run(repository, tmp_path):
    """Monitors, hooks, drivers of diffs, filters (one with a name that no option can say): each would leave a file."""
    trap = tmp_path / "trap"
    trap.write_text(f'#!/bin/sh\necho "$0 $*" >> {tmp_path}/sprung\ncat\n')
    trap.chmod(0o755)
    (repository.folder / ".gitattributes").write_text("*.py diff=odd filter=a=b\n*.txt filter=must\n")
    (repository.folder / "a.txt").write_text("a\n")
    repository.git("add", ".")
    repository.commit()
    for name in ("post-index-change", "fsmonitor-watchman"):
        hook = repository.folder / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_bytes(trap.read_bytes())
        hook.chmod(0o755)
    settings = {
        "core.fsmonitor": str(trap), "diff.external": str(trap), "diff.odd.textconv": str(trap),
        "diff.odd.command": str(trap), "filter.a=b.clean": str(trap), "filter.must.process": str(trap),
        "filter.must.required": "true", "core.pager": str(trap), "pager.diff": str(trap), "pager.config": str(trap),
    }  # fmt: skip
    for name, value in settings.items():
        repository.git("config", name, value)
    (repository.folder / "train.py").write_text("print(2)\n")
    (repository.folder / "a.txt").write_text("b\n")
    assert repository.record().words["git_dirty"] == "2 files, +1 -2 lines"
    assert not (tmp_path / "sprung").exists()
    # And the traps would have been sprung:
    subprocess.run(["git", "status"], cwd=repository.folder, check=False, capture_output=True)
    assert (tmp_path / "sprung").exists()


def test_nothing_is_fetched_of_what_a_partial_clone_lacks(repository, tmp_path):
    """The other end of a remote may be a program that the repository names, or a network that is away."""
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\nexit 1\n")
    trap.chmod(0o755)
    blob = repository.git("rev-parse", "HEAD:train.py")
    settings = {
        "core.repositoryformatversion": "1", "extensions.partialClone": "origin", "remote.origin.promisor": "true",
        "remote.origin.url": str(repository.folder), "remote.origin.uploadpack": str(trap),
        "core.sshCommand": str(trap),
    }  # fmt: skip
    for name, value in settings.items():
        repository.git("config", name, value)
    (repository.folder / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    (repository.folder / "train.py").write_text("print(2)\n")
    found = repository.record()
    assert "git could not say what differs from the commit" in found.words["git_note"]
    assert not (tmp_path / "sprung").exists()


def test_git_writes_nothing_into_a_repository_that_it_looks_at(repository):
    """Another git of the same person may be at work there."""
    os.utime(repository.folder / "train.py", (1, 1))
    before = (repository.folder / ".git" / "index").stat().st_mtime_ns
    assert repository.record().words["git_dirty"] == "no"
    assert (repository.folder / ".git" / "index").stat().st_mtime_ns == before


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only root can give a folder to somebody else")
def test_a_repository_of_another_account_is_told_and_no_error(repository):
    """Who is not its owner reads nothing of it until `safe.directory` names it."""
    for place in (repository.folder, repository.folder / ".git"):
        os.chown(place, 65534, 65534)
    found = repository.record()
    assert "safe.directory" in found.words["git_note"]
    assert "git_commit" not in found.words


def git_words(found: Recorded) -> set[str]:
    """What was said of a repository."""
    return {word for word in found.words if word.startswith("git")}


def test_without_git_or_a_repository_nothing_is_said_of_it(repository, tmp_path):
    """And nothing is started for a folder that is in no repository."""
    assert not git_words(repository.record(PATH=str(tmp_path)))
    (tmp_path / "plain").mkdir()
    assert not git_words(record(str(tmp_path / "plain"), ["true"], os.environ))
    assert not git_words(record("/no/such/folder", ["true"], os.environ))


def test_a_git_that_does_not_answer_in_time_is_told_and_keeps_nobody(repository, tmp_path, monkeypatch):
    """A huge repository on a slow disk: what is known until then is recorded."""
    (tmp_path / "bin").mkdir()
    slow = tmp_path / "bin" / "git"
    path = os.environ["PATH"]
    slow.write_text(f'#!/bin/sh\ncase "$*" in *status*) exec sleep 60;; esac\nPATH={path} exec git "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setattr(recording_git, "MOST_SECONDS", 1.5)
    found = repository.record(PATH=f"{tmp_path / 'bin'}:{path}")
    assert found.words["git_commit"] == repository.git("rev-parse", "HEAD")
    assert found.words["git_note"].startswith("git needed more than 1.5 seconds")


def test_what_the_surroundings_say_to_git_is_not_heard(repository, tmp_path):
    """A submission from a hook of another repository records its own folder's."""
    other = Repository(tmp_path / "other")
    found = repository.record(GIT_DIR=str(other.folder / ".git"), GIT_WORK_TREE=str(other.folder))
    assert found.words["git_root"] == str(repository.folder)
    assert found.words["git_dirty"] == "no"


# -- the interpreter and its packages


def environment(folder: Path, *, packages: tuple[str, ...] = (), text: str = "version = 3.11.4\n") -> Path:
    """A virtual environment as far as files tell: pyvenv.cfg, a python that must not be run, and dist-info folders."""
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = /nowhere\n{text}")
    (folder / "bin" / "python").write_text("#!/bin/false\n")
    (folder / "bin" / "python").chmod(0o755)
    for name in packages:
        (folder / "lib" / "python3.11" / "site-packages" / name).mkdir(parents=True)
    return folder


def packages_of(found: Recorded) -> list[str]:
    """The lines of the list that was kept, without its heading."""
    text = next((it.content.decode() for it in found.record if it.name == "packages"), "")
    return text.splitlines()[1:]


def test_the_interpreter_of_the_job_is_recorded_and_not_ours(tmp_path):
    """By its own path, or by the environment that is active; its list is read without starting it."""
    venv = environment(tmp_path / "venv", packages=("torch-2.3.1.dist-info", "PyYAML-6.0.2.dist-info", "__pycache__"))
    by_path = record(str(tmp_path), ["venv/bin/python", "train.py"], {})
    active = record(str(tmp_path), ["python", "train.py"], {"PATH": str(venv / "bin")})
    wrapped = record(str(tmp_path), ["env", "A=1", "nohup", "python", "x"], {"PATH": f"{venv / 'bin'}:/usr/bin:/bin"})
    for found in (by_path, active, wrapped):
        assert (found.words["python"], found.words["python_version"]) == (str(venv / "bin" / "python"), "3.11.4")
        assert found.words["packages"] == "2"
        assert packages_of(found) == ["pyyaml==6.0.2", "torch==2.3.1"]


def test_a_program_of_an_environment_leads_to_its_python(tmp_path):
    """Scripts of pip, such as torchrun, name it in their first line, or a long one in their second."""
    venv = environment(tmp_path / "venv", packages=("torch-2.3.1.dist-info",))
    python = venv / "bin" / "python"
    for name, text in {
        "torchrun": f"#!{python}\nimport torch\n",
        "accelerate": f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n",
        "mine.py": "#!/usr/bin/env python\n",
        "run.sh": "#!/bin/bash\npython train.py\n",
    }.items():
        (venv / "bin" / name).write_text(text)
        (venv / "bin" / name).chmod(0o755)
        found = record(str(tmp_path), [name, "train.py"], {"PATH": str(venv / "bin")})
        assert found.words["python"] == str(python), name
    assert record(str(tmp_path), ["bash", "x.sh"], {"PATH": f"{venv / 'bin'}:/bin"}).words["python"] == str(python)


def test_uv_runs_the_environment_of_the_folder(tmp_path):
    """Whatever else is active."""
    venv = environment(tmp_path / ".venv", text="version_info = 3.12.1.final.0\n")
    (tmp_path / "uv").write_text("")
    (tmp_path / "uv").chmod(0o755)
    words = record(str(tmp_path), ["uv", "run", "train.py"], {"PATH": str(tmp_path)}).words
    assert (words["python"], words["python_version"]) == (str(venv / "bin" / "python"), "3.12.1")


def test_of_a_program_that_is_no_python_none_is_recorded(tmp_path):
    """A compiled one, and one that is not there."""
    assert "python" not in record(str(tmp_path), ["/bin/true"], os.environ).words
    assert "python" not in record(str(tmp_path), ["no-such-command"], os.environ).words
    assert "python" not in record(str(tmp_path), [], os.environ).words


def test_a_python_without_files_that_say_its_version_is_asked(tmp_path):
    """The system's own: by -V, which answers before anything is imported; a script in its place is not run."""
    done = spawn.run(["/usr/bin/python3", "-V"], 30)
    if done.exit_code != 0:
        pytest.skip("this machine has no Python of its system")
    words = record(str(tmp_path), ["/usr/bin/python3"], {}).words
    assert f"Python {words['python_version']}\n" == done.output
    (tmp_path / "python").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (tmp_path / "python").chmod(0o755)
    assert "python_version" not in record(str(tmp_path), ["./python"], {}).words
    assert not (tmp_path / "ran").exists()


def test_where_a_package_came_from_is_kept_without_secrets(tmp_path):
    """One that is being worked on, and one of a repository with a token in its address."""
    venv = environment(tmp_path / "venv", packages=("mine-0.1.dist-info", "theirs-1.0.dist-info", "odd-1.dist-info"))
    site = venv / "lib" / "python3.11" / "site-packages"
    sources = {
        "mine-0.1": {"url": "file:///home/ada/mine", "dir_info": {"editable": True}},
        "theirs-1.0": {"url": "https://tok@git.lab/t.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
    }
    for name, said in sources.items():
        (site / f"{name}.dist-info" / "direct_url.json").write_text(json.dumps(said))
    (site / "odd-1.dist-info" / "direct_url.json").write_text("[1]")
    assert packages_of(record(str(tmp_path), ["venv/bin/python"], {})) == [
        "mine @ file:///home/ada/mine (editable)",
        "odd==1",
        "theirs @ git+https://git.lab/t.git@abc",
    ]


def test_the_list_agrees_with_what_this_python_says_of_itself(tmp_path):
    """The environment that these tests run in, by importlib.metadata."""
    code = (
        "import importlib.metadata as m, re\nprint(*{re.sub('[-_.]+', '-', d.name).lower() for d in m.distributions()})"
    )
    done = spawn.run([sys.executable, "-I", "-c", code], 30, cwd="/")
    listed = packages_of(record(str(tmp_path), [sys.executable], {}))
    assert {line.split("==")[0].split(" @ ")[0] for line in listed} == set(done.output.split())


def test_the_base_of_an_environment_counts_where_it_is_seen(tmp_path):
    """As for one that was made with --system-site-packages; the nearer package of one name goes first."""
    base = tmp_path / "base"
    (base / "lib" / "python3.11" / "site-packages" / "numpy-2.0.dist-info").mkdir(parents=True)
    (base / "lib" / "python3.11" / "site-packages" / "torch-1.0.dist-info").mkdir()
    (base / "bin").mkdir()
    text = f"home = {base / 'bin'}\ninclude-system-site-packages = true\nversion = 3.11.4\n"
    environment(tmp_path / "venv", packages=("torch-2.3.1.dist-info",), text=text)
    found = record(str(tmp_path), ["venv/bin/python"], {"HOME": str(tmp_path)})
    assert packages_of(found) == ["numpy==2.0", "torch==2.3.1"]


def test_conda_tells_its_version_and_packages_by_the_names_of_its_files(tmp_path):
    """What pip installed beside is there too."""
    (tmp_path / "conda" / "conda-meta").mkdir(parents=True)
    for name in ("python-3.12.4-h99e_0.json", "cuda-nvcc-12.4.131-0.json", "history"):
        (tmp_path / "conda" / "conda-meta" / name).write_text("")
    (tmp_path / "conda" / "bin").mkdir()
    (tmp_path / "conda" / "bin" / "python").write_text("")
    (tmp_path / "conda" / "bin" / "python").chmod(0o755)
    (tmp_path / "conda" / "lib" / "python3.12" / "site-packages" / "einops-0.8.0.dist-info").mkdir(parents=True)
    found = record(str(tmp_path), ["conda/bin/python"], {"HOME": str(tmp_path)})
    assert found.words["python_version"] == "3.12.4"
    assert packages_of(found) == ["cuda-nvcc=12.4.131=0", "einops==0.8.0", "python=3.12.4=h99e_0"]


def test_a_folder_of_packages_is_read_once_for_as_long_as_it_is_the_same(tmp_path, monkeypatch):
    """A thousand submissions look at it a thousand times, and read it once; an installation is seen."""
    venv = environment(tmp_path / "venv", packages=("a-1.dist-info",))
    reads = []
    real = recording_python._read
    monkeypatch.setattr(recording_python, "_read", lambda place: reads.append(place) or real(place))
    for _ in range(5):
        assert packages_of(record(str(tmp_path), ["venv/bin/python"], {})) == ["a==1"]
    assert len(reads) == 1
    (venv / "lib" / "python3.11" / "site-packages" / "b-1.dist-info").mkdir()
    assert packages_of(record(str(tmp_path), ["venv/bin/python"], {})) == ["a==1", "b==1"]


def test_a_word_is_short_and_can_be_sent_whatever_bytes_it_is_made_of(tmp_path):
    """A folder whose name is no UTF-8 comes back byte for byte."""
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xe9"))
    environment(odd / "venv")
    word = record(str(odd), ["venv/bin/python"], {}).words["python"]
    assert unpack_bytes(word) == os.fsencode(odd / "venv" / "bin" / "python")


def test_the_machine_is_said_in_one_line():
    """Its system, and the C library that a compiled wheel has to fit."""
    platform = record("/", ["/bin/true"], {}).words["platform"]
    assert platform.startswith(f"Linux {os.uname().release} {os.uname().machine}")
    assert "\n" not in platform


def test_the_names_of_what_is_kept_are_those_that_the_broker_gives_back():
    """`Client.record(ID, NAME)` asks by them."""
    assert (recording.DIFF, recording.PACKAGES) == ("diff", "packages")
