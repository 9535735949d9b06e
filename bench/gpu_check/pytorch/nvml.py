"""Memory of a card as the driver sees it, by libnvidia-ml.so.1 alone: no Python package is needed."""

import ctypes
import threading


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Nvml:
    """Throws OSError where there is no driver or no such card, AttributeError for a library without these functions."""

    def __init__(self, index=0):
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self.card = ctypes.c_void_p()
        self.check(self.library.nvmlInit_v2())
        self.check(self.library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(self.card)))

    def check(self, code):
        if code != 0:
            raise OSError(f"NVML: error {code}")

    def used(self):
        memory = Memory()
        self.check(self.library.nvmlDeviceGetMemoryInfo(self.card, ctypes.byref(memory)))
        return memory.used


class Peak:
    """The most bytes of the card in use while it lasts, over those at its begin; sampled every 5 ms. `bytes` is None where
    there is no NVML."""

    def __init__(self, wanted):
        self.bytes = None
        self.done = threading.Event()
        self.nvml = None
        if wanted:
            try:
                self.nvml = Nvml()
            except (OSError, AttributeError):
                pass

    def __enter__(self):
        if self.nvml:
            self.before = self.nvml.used()
            self.bytes = 0
            self.thread = threading.Thread(target=self.watch, daemon=True)
            self.thread.start()
        return self

    def sample(self):
        if self.nvml:
            self.bytes = max(self.bytes, self.nvml.used() - self.before)

    def watch(self):
        while not self.done.wait(0.005):
            self.sample()

    def __exit__(self, *error):
        self.done.set()
        if self.nvml:
            self.thread.join()
            self.sample()
