"""Run the copy of a submitted script as if it were the original.

    python run_copy.py COPY FOLDER NAME ARGUMENT...

The code is the copy's, so an edit does not change a queued job, and tracebacks show its lines under the original's
name, without ours. All else is as with `python NAME ARGUMENT...` in FOLDER: sys.argv, sys.path[0] and __file__, so
that `Path(__file__).parent` finds the data beside the original. (So a worker that multiprocessing *spawns* reads the
original again: it goes by __file__.) A script in a subfolder has FOLDER second on sys.path. This file is copied into
the attempt's folder and run by whatever Python the job uses, so it must stay free of our imports and of new syntax.
"""

import linecache
import os
import sys


def _without_us(ours):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - typing is an import
    """Make what shows an exception that nobody has caught: as Python does, from the script's own lines on."""

    def show(kind, value, where):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as above
        import traceback  # noqa: PLC0415 - the script's names are cleared of ours

        while where is not None and where.tb_frame.f_code.co_filename == ours:
            where = where.tb_next
        traceback.print_exception(kind, value, where)

    return show


def _run() -> None:
    copy, folder, name = sys.argv[1:4]
    here = os.path.dirname(os.path.realpath(sys.argv[0]))  # noqa: PTH120
    sys.argv[:] = [name, *sys.argv[4:]]
    original = os.path.normpath(os.path.join(folder, name))  # noqa: PTH118
    # With -I or -P Python has put no script folder there, and then we put none either.
    if sys.path and os.path.realpath(sys.path[0]) == here:
        beside = os.path.dirname(os.path.realpath(original))  # noqa: PTH120
        sys.path[0:1] = [beside] if beside == os.path.realpath(folder) else [beside, folder]
    # A cell of a notebook has no original, and then a worker that is spawned must find the copy.
    file_seen = original if os.path.exists(original) else copy  # noqa: PTH110
    with open(copy, "rb") as file:  # noqa: PTH123
        source = file.read()
    # Whoever looks for the source (a traceback, inspect.getsource, a compiler of kernels) finds what runs. Without a
    # time of change it is never read anew.
    lines = source.decode("utf-8", "replace").splitlines(True)  # noqa: FBT003 - it takes no name everywhere
    linecache.cache[file_seen] = (len(source), None, lines, file_seen)
    sys.excepthook = _without_us(_run.__code__.co_filename)  # type: ignore[no-untyped-call]
    code = compile(source, file_seen, "exec", dont_inherit=True)
    main = sys.modules["__main__"].__dict__
    for left in ("_run", "_without_us", "linecache", "os", "sys"):
        main.pop(left, None)
    main.update(__file__=file_seen, __doc__=None)
    exec(code, main)  # noqa: S102 - that is the whole purpose


_run()
