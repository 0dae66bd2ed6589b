"""The pure middle of the house: it decides, and does no I/O, reads no clock and draws no random number."""
