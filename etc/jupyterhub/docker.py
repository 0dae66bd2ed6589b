"""JupyterHub on one machine with GPUs, each server in a container that is given the GPUs of its lease by UUID.

The hub runs on the machine itself, as root: the GPU service that it starts looks at the cards by NVIDIA's driver
library, and runs jobs. Needs dockerspawner and NVIDIA's container toolkit, and jupyter-gpu in the image.
"""

import os

from jupyter_gpu.jupyter.service import setup_hub

c = get_config()

# How containers reach this machine: the gateway of docker's network. `docker network inspect bridge` shows it.
HOST = os.environ.get("HUB_HOST", "172.17.0.1")

c.JupyterHub.bind_url = "http://:8000"
c.JupyterHub.hub_ip = HOST
c.JupyterHub.spawner_class = "docker"
c.JupyterHub.authenticator_class = "dummy"  # put yours here
c.Authenticator.allow_all = True
c.JupyterHub.cleanup_servers = False

c.DockerSpawner.image = "quay.io/jupyter/pytorch-notebook:cuda12-latest"
# Each start makes the container anew: one that is kept would keep the GPUs that it was made with.
c.DockerSpawner.remove = True
c.DockerSpawner.use_internal_ip = True
c.DockerSpawner.volumes = {"jupyterhub-{username}": "/home/jovyan/work"}
# What you ask of docker stays; a request of GPUs gives way to the one of the lease, and the log says so.
c.DockerSpawner.extra_host_config = {"shm_size": "8g"}

setup_hub(
    c,
    profiles=[
        {"name": "none", "title": "No GPU", "devices": 0},
        {"name": "one", "title": "One GPU", "devices": 1, "duration_seconds": "8h"},
        {"name": "two", "title": "Two GPUs", "devices": 2, "duration_seconds": "4h"},
    ],
    policy={"quotas": [{"user": "*", "devices": 2}]},
    # The service listens on 127.0.0.1, which in a container is the container. The hub's proxy brings its callers.
    url=f"http://{HOST}:8000/services/jupyter-gpu",
    # People have no accounts here, so jobs run as one that you make for them: `useradd --create-home gpu-jobs`.
    # Without it they may reserve, and submit no jobs.
    broker={"account_of_user": {"*": "gpu-jobs"}},
)
