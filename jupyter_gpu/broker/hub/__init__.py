"""The broker as a service of JupyterHub: who its users are, which of their servers live, where the service is called.

Nothing outside this package knows jupyterhub, and what here needs it is imported only where `GpuBroker.hub` is set.
"""
