"""Readings of the devices: the only room with NVML, and simulated devices beside it."""
