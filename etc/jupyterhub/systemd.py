"""JupyterHub on one machine with GPUs, each server in a systemd unit that can open the GPUs of its lease and no others.

Run as root: `jupyterhub -f systemd.py`. Needs jupyterhub-systemdspawner. What a DeviceAllow closes, no program in the
server opens, whatever it sets CUDA_VISIBLE_DEVICES to.
"""

from jupyter_gpu.jupyter.service import setup_hub

c = get_config()

c.JupyterHub.bind_url = "http://:8000"
c.JupyterHub.spawner_class = "systemd"
c.JupyterHub.authenticator_class = "pam"
c.Authenticator.allow_all = True  # everybody with an account
c.JupyterHub.cleanup_servers = False

c.SystemdSpawner.mem_limit = "32G"
c.SystemdSpawner.cpu_limit = 8.0
c.SystemdSpawner.isolate_tmp = True
# A user who may use sudo opens whatever they like.
c.SystemdSpawner.disable_user_sudo = True
# Devices of your own that servers need stay: the GPUs of the lease are added to them.
c.SystemdSpawner.unit_extra_properties = {"DeviceAllow": ["/dev/fuse rw"]}
c.SystemdSpawner.default_url = "/lab"

setup_hub(
    c,
    profiles=[
        # A server without devices is shut off from all of them, kernels too, unless its kernels may reserve: a unit
        # that is to open any GPU later cannot be kept from the others.
        {"name": "cpu", "title": "No GPU", "devices": 0, "for_kernels": False},
        {"name": "one", "title": "One GPU", "devices": 1, "duration_seconds": "8h"},
        {"name": "four", "title": "Four GPUs", "devices": 4, "duration_seconds": "2h", "teams": ["training"]},
    ],
    policy={"quotas": [{"user": "*", "devices": 4}], "names_are_public": True},
    operators={"groups": ["gpu-operators"]},
)
