"""Where the time of an attempt goes, by the host's clock: timing.csv."""
import time

PARTS = ("data", "forward", "backward", "update", "log")


class Clock:
    """Time runs on account of one part after the other: begin(part) ends the part before it."""

    def __init__(self):
        self.begun = time.perf_counter()
        self._now, self._since = "data", self.begun
        self._all_images, self._training = 0, 0.0
        self._restart(self.begun)

    def _restart(self, now):
        self._seconds, self._first, self._images = dict.fromkeys(PARTS, 0.0), now, 0

    def begin(self, part):
        now = time.perf_counter()
        self._seconds[self._now] += now - self._since
        self._training += now - self._since if self._now != "log" else 0
        self._now, self._since = part, now

    def images(self, count):
        self._images += count
        self._all_images += count

    def row(self):
        """The columns of a row, since the row before."""
        self.begin(self._now)
        seconds, spent = self._since - self._first, self._seconds
        training = max(sum(spent.values()) - spent["log"], 1e-9)
        row = {"seconds": seconds, "images_per_second": self._images / training, **spent}
        self._restart(self._since)
        return row

    def speed(self):
        """Images of the whole run for each second that was not spent on logs."""
        return self._all_images / max(self._training, 1e-9)

    def total(self):
        return time.perf_counter() - self.begun
