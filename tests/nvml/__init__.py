"""A driver that is none: `board.py` says what its cards show, and a library in C tells it to whoever asks NVML."""
