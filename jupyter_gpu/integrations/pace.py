"""When a training saves without being asked to: what a sudden end costs at most."""

import time


class Pace:
    """Every so many steps, or so many seconds, whichever comes first; None for no such rule."""

    def __init__(self, every_steps: int | None, every_seconds: float | None) -> None:
        for name, value in (("every_steps", every_steps), ("every_seconds", every_seconds)):
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be more than 0, or None for no such rule; not {value}")
        self._steps, self._seconds = every_steps, every_seconds
        self.saved(0)

    def saved(self, step: int) -> None:
        """Count from here."""
        self._step, self._at = step, time.monotonic()

    def is_due(self, step: int) -> bool:
        """Whether it is time to save."""
        if self._steps is not None and step - self._step >= self._steps:
            return True
        return self._seconds is not None and time.monotonic() - self._at >= self._seconds
