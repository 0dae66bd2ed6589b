"""JupyterHub on the head of a small Slurm cluster, each server a job of Slurm.

Slurm chooses the node and the cards and keeps servers from those of others; the lease bounds who may hold how many at
once, shows it to everybody, and lets a server wait in line before it becomes a job. So let Slurm have the cards for
servers: one broker looks after the cards of one machine, and this suits a lab whose GPUs are in the machine that is the
head too. Needs batchspawner. Torque, PBS, Grid Engine, HTCondor and LSF are set up alike, with their own spawner.
"""

from jupyter_gpu.jupyter.service import setup_hub

c = get_config()

c.JupyterHub.bind_url = "http://:8000"
c.JupyterHub.hub_ip = "0.0.0.0"  # nodes come to the hub from elsewhere
c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
c.JupyterHub.authenticator_class = "pam"
c.Authenticator.allow_all = True
c.JupyterHub.cleanup_servers = False

# batchspawner's own way to hear from which node and port a server came up.
c.Spawner.start_timeout = 600
c.BatchSpawnerBase.req_partition = "gpu"
c.BatchSpawnerBase.req_runtime = "8:00:00"
c.BatchSpawnerBase.req_nprocs = "8"
c.BatchSpawnerBase.req_memory = "32G"
# The template has a place for {gres}; the lease fills it. A type that stands here stays: gpu:a100:1, gpu:a100:2 ...
c.SlurmSpawner.req_gres = "gpu:a100:1"

setup_hub(
    c,
    profiles=[
        {"name": "cpu", "title": "No GPU", "devices": 0, "for_kernels": False},
        # Not longer than req_runtime: Slurm ends the server then, whatever the lease says.
        {"name": "one", "title": "One GPU", "devices": 1, "duration_seconds": "8h", "for_kernels": False},
        {"name": "two", "title": "Two GPUs", "devices": 2, "duration_seconds": "4h", "for_kernels": False},
    ],
    policy={"quotas": [{"user": "*", "devices": 2}, {"user": "*", "gpu_hours": 40, "window_seconds": "7d"}]},
    # As the nodes reach the hub's proxy.
    url="http://head.example:8000/services/jupyter-gpu",
    operators={"groups": ["gpu-operators"]},
)
