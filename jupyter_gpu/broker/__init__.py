"""The one process that owns the devices of its pools and writes the store."""
