"""JupyterHub on one machine with GPUs: everybody has an account there, and servers run as processes of it.

Run as root: `jupyterhub -f local.py`. Needs jupyterhub-idle-culler. Jobs of the queue run as who submits them, with
their groups and home. What each part does, and what it is safe against: docs/hub.md.
"""

import os
import sys

from jupyter_gpu.jupyter.service import setup_hub

c = get_config()

# -- the hub's own settings come first

c.JupyterHub.bind_url = "http://:8000"
c.JupyterHub.spawner_class = "jupyterhub.spawner.LocalProcessSpawner"
c.JupyterHub.authenticator_class = "pam"
c.Authenticator.allowed_users = {"ada", "grace", "alan", "joan"}
c.Authenticator.admin_users = {"grace"}

# Groups of the hub are teams of the queue. Members may be changed on the hub's admin page while it runs.
c.JupyterHub.load_groups = {"vision": {"users": ["ada", "grace"]}, "speech": {"users": ["alan"]}}

# Servers outlive a restart of the hub, and keep their GPUs meanwhile.
c.JupyterHub.cleanup_servers = False
# A server that died gives its GPUs back with the next look at it.
c.Spawner.poll_interval = 15
c.Spawner.default_url = "/lab"

# Servers that nobody uses are ended. One whose GPUs compute counts as used; a job of the queue does not, it runs on.
c.JupyterHub.load_roles = [
    {
        "name": "idle-culler",
        "scopes": ["list:users", "read:users:activity", "read:servers", "delete:servers"],
        "services": ["idle-culler"],
    }
]
c.JupyterHub.services = [
    {"name": "idle-culler", "command": [sys.executable, "-m", "jupyterhub_idle_culler", "--timeout=7200"]}
]

# -- then the GPUs, in one call

setup_hub(
    c,
    # What people choose from on the page before their server starts. The first is what a start without a choice takes.
    profiles=[
        {"name": "none", "title": "No GPU", "description": "Notebooks reserve one when they need it.", "devices": 0},
        {"name": "one", "title": "One GPU", "devices": 1, "duration_seconds": "8h"},
        # Only for members of a team; held for the whole time that the server runs, at most so long.
        {"name": "two", "title": "Two GPUs", "devices": 2, "duration_seconds": "4h", "teams": ["vision"]},
    ],
    # The rules of the queue: docs/admin.md has them all.
    policy={
        "quotas": [
            {"team": "vision", "share_devices": 2},  # theirs whenever they want it; others may borrow it meanwhile
            {"user": "*", "devices": 2},  # at once, over all servers, kernels and jobs of a person
            {"user": "*", "gpu_hours": 100, "window_seconds": "7d"},
        ],
        # Warned of after so long without use, and given back ten minutes later unless its owner keeps it.
        "idle_warn_seconds": "20m",
    },
    # Who may cancel others' work, read its logs and take GPUs out of use, on the page /services/jupyter-gpu/.
    operators=["grace"],
    admins=["grace"],
    # People who see their own work only. Then researchers must be named too, for roles add up:
    #   contractors=["joan"], researchers={"groups": ["vision", "speech"]},
    # Other settings of the broker, and simulated GPUs to try all of this without a card:
    broker={"simulated_devices": int(os.environ.get("SIMULATED_GPUS", "0"))},
)
