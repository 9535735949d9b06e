"""The most memory of a card that a program takes, as the driver sees it."""

import sys
import threading
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
from nvml import open_nvml  # noqa: E402


class Peak:
    """The most bytes of the card in use while it lasts, over those at its begin; sampled every 5 ms. `bytes` is None where
    there is no NVML."""

    def __init__(self, device):
        """`device` as PyTorch names it: cpu, cuda or cuda:N."""
        self.bytes = None
        self.done = threading.Event()
        self.nvml = open_nvml(int(device.partition(":")[2] or 0)) if device != "cpu" else None

    def __enter__(self):
        if self.nvml:
            self.before = self.nvml.memory()["used"]
            self.bytes = 0
            self.thread = threading.Thread(target=self.watch, daemon=True)
            self.thread.start()
        return self

    def sample(self):
        if self.nvml:
            self.bytes = max(self.bytes, self.nvml.memory()["used"] - self.before)

    def watch(self):
        while not self.done.wait(0.005):
            self.sample()

    def __exit__(self, *error):
        self.done.set()
        if self.nvml:
            self.thread.join()
            self.sample()
