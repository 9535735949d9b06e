"""What the management library says, over a small one in its place."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench" / "gpu_check"))
import nvml  # noqa: E402

# Signatures and structures as NVIDIA's nvml.h has them (nvmlProcessInfo_t of version 3).
SOURCE = """
#include <string.h>
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned int pid; unsigned long long used; unsigned int gpu, compute; } process;
static int card;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** device) { *device = &card; return strcmp(bus, "0000:41:00.0") ? 6 : 0; }
int cuInit(unsigned int flags) { return flags; }
int cuDeviceGet(int* device, int ordinal) { *device = ordinal + 7; return ordinal < 2 ? 0 : 101; }
int cuDeviceGetPCIBusId(char* to, int length, int device) { strncpy(to, device == 7 ? "0000:41:00.0" : "0000:03:00.0", length); return 0; }
int nvmlDeviceGetMemoryInfo(void* device, memory* to) { *to = (memory){100, 70, 30}; return device == &card ? 0 : 2; }
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned int* count, process* to) {
  if (device != &card || *count < 3) return 7;
  to[0] = (process){11, 5, 0, 0}; to[1] = (process){12, 6ull << 32, 0, 0}; to[2] = (process){13, ~0ull, 0, 0};
  *count = 3;
  return 0;
}
int nvmlDeviceGetName(void* device, char* to, unsigned int length) { strncpy(to, "a card", length); return device == &card ? 0 : 2; }
int nvmlSystemGetDriverVersion(char* to, unsigned int length) { strncpy(to, "580.1", length); return 0; }
"""


class Library(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        source, cls.library = Path(cls.folder.name, "nvml.c"), Path(cls.folder.name, "libnvml.so")
        source.write_text(SOURCE, encoding="utf-8")
        compiler = os.environ.get("STOWAGE_COMPILER", "cc")
        subprocess.run([compiler, "-x", "c", "-shared", "-fPIC", "-o", cls.library, source], check=True)

    def test_tells_the_card_and_its_processes_apart(self):
        card = nvml.Nvml(0, self.library, self.library)
        self.assertEqual(card.memory(), {"total": 100, "free": 70, "used": 30})
        self.assertEqual([card.used_by(pid) for pid in (11, 12, 13, 14)], [5, 6 << 32, None, None])
        self.assertEqual(card.describe(), {"card": "a card", "driver": "580.1", "total": 100, "free": 70, "used": 30})

    def test_an_error_names_the_function(self):
        with self.assertRaisesRegex(OSError, "nvmlDeviceGetHandleByPciBusId_v2 returned 6"):
            nvml.Nvml(1, self.library, self.library)  # another card: the place of CUDA's is what NVML is asked for
        with self.assertRaisesRegex(OSError, "cuDeviceGet returned 101"):
            nvml.Nvml(2, self.library, self.library)

    def test_no_library_is_no_card(self):
        with self.assertRaises(OSError):
            nvml.Nvml(library="libno-management.so.1")


if __name__ == "__main__":
    unittest.main()
