#include "stowage/launch_table.h"

#include <string>
#include <utility>

#include "src/nn/cpu_adapter.h"
#include "stowage/error.h"

namespace stowage {

void LaunchTable::add(std::string name, Kernel kernel) { kernels_[std::move(name)] = kernel; }

Kernel LaunchTable::find(const Op& op) const {
  const auto found = kernels_.find(op.kernel);
  if (found != kernels_.end()) return found->second;
  throw InvalidInput("op '" + op.name + "' needs the kernel '" + op.kernel +
                     "', which this device's launch table lacks; add it with LaunchTable::add");
}

LaunchTable cpu_launch_table() {
  LaunchTable table;
  cpu::add_transformer_kernels(table);
  cpu::add_update_kernels(table);
  return table;
}

}  // namespace stowage
