// A backend of another build: of it, only what is read first is right.
#include "src/device/backend_module.h"

extern "C" const stowage::BackendModule* stowage_backend_module() {
#ifdef OTHER_INTERFACE
  static const stowage::BackendModule module{
      stowage::backend_module_abi + 1, "", nullptr, nullptr, nullptr, nullptr, nullptr};
#else
  static const stowage::BackendModule module{
      stowage::backend_module_abi, "0.0.1 of another compiler", nullptr, nullptr, nullptr, nullptr, nullptr};
#endif
  return &module;
}
