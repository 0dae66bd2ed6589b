"""JupyterHub on Kubernetes with one node that has GPUs. The GPU service runs on that node, beside the cluster.

One broker looks after the cards of one machine, so this suits a lab whose GPUs are in one node; with Zero to JupyterHub
put it under `hub.extraConfig`. On the node, as root:

    export JUPYTERHUB_API_URL=http://HUB:8081/hub/api          # as the node reaches the hub
    export JUPYTERHUB_BASE_URL=/
    export JUPYTERHUB_SERVICE_NAME=jupyter-gpu
    export JUPYTERHUB_SERVICE_PREFIX=/services/jupyter-gpu/
    export JUPYTERHUB_SERVICE_URL=http://0.0.0.0:8790          # where it listens
    export JUPYTERHUB_API_TOKEN=...                            # GPU_API_TOKEN below
    export JUPYTER_GPU_SPAWNER_DIGEST=...                      # printf %s "$GPU_SPAWNER_TOKEN" | sha256sum
    python -m jupyter_gpu.broker.app --hub --system

Its policy then stands there, in jupyter_gpu_config.py, and must have the same profiles.
"""

import os

from jupyter_gpu.jupyter.service import setup_hub

c = get_config()

c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"
c.JupyterHub.authenticator_class = "dummy"  # put yours here
c.Authenticator.allow_all = True
c.JupyterHub.hub_ip = "0.0.0.0"  # in its pod
c.JupyterHub.hub_connect_ip = "hub"
c.JupyterHub.cleanup_servers = False

c.KubeSpawner.image = "quay.io/jupyter/pytorch-notebook:cuda12-latest"
c.KubeSpawner.start_timeout = 600
# The cluster chooses which of the node's cards a pod gets; the limit nvidia.com/gpu is what the lease says. MIG devices
# and other names of the resource:
c.GpuSpawner.gpu_names = {"mig-3g.40gb": "nvidia.com/mig-3g.40gb"}

setup_hub(
    c,
    profiles=[
        {"name": "none", "title": "No GPU", "devices": 0, "for_kernels": False},
        {"name": "one", "title": "One GPU", "devices": 1, "duration_seconds": "8h", "for_kernels": False},
    ],
    # Where the hub's proxy, the hub and the pods reach the service: the node's address.
    ip=os.environ.get("GPU_NODE", "gpu-node"),
    url=f"http://{os.environ.get('GPU_NODE', 'gpu-node')}:8790/services/jupyter-gpu",
    # Secrets of the deployment. The first is the service's token at the hub, the second lets the hub ask for its users.
    api_token=os.environ["GPU_API_TOKEN"],
    spawner_token=os.environ["GPU_SPAWNER_TOKEN"],
)
