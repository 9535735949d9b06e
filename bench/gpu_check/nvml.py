"""Device memory as NVIDIA's management library tells it: of the whole card, and of one process."""

import ctypes

MOST_PROCESSES = 64
NOT_AVAILABLE = 2**64 - 1  # where the driver does not tell processes apart


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


def call(library, name, *arguments):
    code = getattr(library, name)(*arguments)
    if code != 0:
        raise OSError(f"{name} returned {code}")


def bus_id(ordinal, driver="libcuda.so.1"):
    """Where the card sits that CUDA counts as `ordinal`. CUDA_VISIBLE_DEVICES changes CUDA's order and not NVML's."""
    library = ctypes.CDLL(driver)
    device, found = ctypes.c_int(), ctypes.create_string_buffer(32)
    call(library, "cuInit", ctypes.c_uint(0))
    call(library, "cuDeviceGet", ctypes.byref(device), ctypes.c_int(ordinal))
    call(library, "cuDeviceGetPCIBusId", found, ctypes.c_int(32), device)
    return found.value


class Nvml:
    """The card that CUDA counts as `ordinal`. OSError where there is no driver or no card."""

    def __init__(self, ordinal=0, library="libnvidia-ml.so.1", driver="libcuda.so.1"):
        self.library = ctypes.CDLL(library)
        self.call("nvmlInit_v2")
        self.device = ctypes.c_void_p()
        self.call("nvmlDeviceGetHandleByPciBusId_v2", bus_id(ordinal, driver), ctypes.byref(self.device))

    def call(self, name, *arguments):
        call(self.library, name, *arguments)

    def memory(self):
        found = Memory()
        self.call("nvmlDeviceGetMemoryInfo", self.device, ctypes.byref(found))
        return {"total": found.total, "free": found.free, "used": found.used}

    def used_by(self, pid):
        """None where the driver does not say."""
        count = ctypes.c_uint(MOST_PROCESSES)
        found = (Process * MOST_PROCESSES)()
        try:
            self.call("nvmlDeviceGetComputeRunningProcesses_v3", self.device, ctypes.byref(count), found)
        except (OSError, AttributeError):
            return None
        used = [process.used for process in found[: count.value] if process.pid == pid]
        return used[0] if used and used[0] != NOT_AVAILABLE else None

    def describe(self):
        name, driver = ctypes.create_string_buffer(96), ctypes.create_string_buffer(80)
        self.call("nvmlDeviceGetName", self.device, name, ctypes.c_uint(96))
        self.call("nvmlSystemGetDriverVersion", driver, ctypes.c_uint(80))
        return {"card": name.value.decode(), "driver": driver.value.decode(), **self.memory()}


def open_nvml(ordinal=0):
    """None where there is no card to ask."""
    try:
        return Nvml(ordinal)
    except (OSError, AttributeError):
        return None
