"""Run the copy of a submitted script as if it were the original.

    python run_copy.py COPY FOLDER NAME ARGUMENT...

The code is the copy's, so an edit does not change a queued job, and tracebacks show it. All else is as with
`python NAME ARGUMENT...` in FOLDER: sys.argv, sys.path[0] and __file__, so that `Path(__file__).parent` finds the data
beside the original. (So a worker that multiprocessing *spawns* reads the original again: it goes by __file__.) A
script in a subfolder has FOLDER second on sys.path. This file is copied into the attempt's folder and run by
whatever Python the job uses, so it must stay free of our imports and of new syntax.
"""

import os
import sys


def _run() -> None:
    copy, folder, name = sys.argv[1:4]
    here = os.path.dirname(os.path.realpath(sys.argv[0]))  # noqa: PTH120
    sys.argv[:] = [name, *sys.argv[4:]]
    original = os.path.normpath(os.path.join(folder, name))  # noqa: PTH118
    # With -I or -P Python has put no script folder there, and then we put none either.
    if sys.path and os.path.realpath(sys.path[0]) == here:
        beside = os.path.dirname(os.path.realpath(original))  # noqa: PTH120
        sys.path[0:1] = [beside] if beside == os.path.realpath(folder) else [beside, folder]
    with open(copy, "rb") as file:  # noqa: PTH123
        code = compile(file.read(), copy, "exec", dont_inherit=True)
    # A cell of a notebook has no original, and then a worker that is spawned must find the copy.
    file_seen = original if os.path.exists(original) else copy  # noqa: PTH110
    main = sys.modules["__main__"].__dict__
    for left in ("_run", "os", "sys"):
        main.pop(left, None)
    main.update(__file__=file_seen, __doc__=None)
    exec(code, main)  # noqa: S102 - that is the whole purpose


_run()
