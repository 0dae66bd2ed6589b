"""Files that are written from the code, so that they cannot disagree with it.

Each module here has a TARGET, a path below the project's folder, and a `render()` that gives its whole text.
`make generate` writes them, `make lint` and a test check them.
"""
