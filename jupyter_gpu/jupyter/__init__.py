"""The faces inside Jupyter: thin, and all of them ask through `jupyter_gpu.client`."""
