// A libnvidia-ml.so.1 that knows one device, with 123 MiB in use by others and 77 reserved by the driver.
#include <cstring>

namespace {

struct Memory {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
int sessions = 0;
int device = 0;
constexpr int success = 0, uninitialised = 1, not_found = 6, mismatch = 25;

}  // namespace

extern "C" {

int nvmlInit_v2() {
  ++sessions;
  return success;
}
int nvmlShutdown() { return --sessions >= 0 ? success : uninitialised; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* pci_bus_id, void** handle) {
  if (sessions == 0) return uninitialised;
  if (std::strcmp(pci_bus_id, "0000:01:00.0") != 0) return not_found;
  *handle = &device;
  return success;
}
int nvmlDeviceGetMemoryInfo_v2(void* handle, Memory* memory) {
  if (handle != &device) return not_found;
  if (memory->version != (sizeof(Memory) | (2U << 24U))) return mismatch;
  constexpr unsigned long long mebibyte = 1 << 20;
  *memory = {memory->version, 1024 * mebibyte, 77 * mebibyte, 824 * mebibyte, 123 * mebibyte};
  return success;
}
}
