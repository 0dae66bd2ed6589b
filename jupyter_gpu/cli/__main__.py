"""`python -m jupyter_gpu.cli`, where the console script is not on the PATH."""

from . import main

if __name__ == "__main__":
    main()
