"""The host as a device of Gemini, for a test of contest.py without a card.

ColossalAI's accelerator for the CPU has no streams, and Gemini takes a chunk on the CPU for one that is not on the
device. So this accelerator says that its device is a card: chunks then move in host memory as they move on a card.
"""

import os
from contextlib import nullcontext

from colossalai.accelerator import CpuAccelerator, set_accelerator

CARD = "cuda"


class Device(str):
    """The device "cpu" for PyTorch, a card for Gemini, which reads `type`."""

    type = CARD


class Stream:
    """Each call is done when it returns."""

    def synchronize(self):
        pass

    def wait_stream(self, stream):
        pass


class HostAsCard(CpuAccelerator):
    def __init__(self):
        super().__init__()
        self._name = CARD

    def get_current_device(self):
        return Device("cpu")

    def device_count(self):
        return 1

    def Stream(self, device=None, priority=0, **kwargs):
        return Stream()

    def current_stream(self, device=None):
        return Stream()

    def stream(self, stream_):
        return nullcontext()


def pretend():
    set_accelerator(HostAsCard())
    os.environ["FORCE_CUDA"] = "1"  # its AdamW for x86 is compiled for CUDA alone, though on the host
