#include "src/device/backend_module.h"

namespace stowage {

const char* backend_module_version() { return STOWAGE_VERSION " " __VERSION__; }

}  // namespace stowage
