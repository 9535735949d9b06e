#include "stowage/launch_table.h"

#include <string>
#include <utility>

#include "src/device/backend_module.h"
#include "src/nn/cpu_adapter.h"
#include "stowage/cuda_device.h"
#include "stowage/error.h"

namespace stowage {

void LaunchTable::add(std::string name, Kernel kernel) {
  std::erase_if(kernels_, [&](const auto& entry) { return entry.first.starts_with(name + "."); });
  joint_kernels_.erase(name);
  kernels_[std::move(name)] = kernel;
}

void LaunchTable::add_joint(std::string name, JointKernel kernel) {
  joint_kernels_[std::move(name)] = kernel;
}

JointKernel LaunchTable::find_joint(const std::string& name) const {
  const auto found = joint_kernels_.find(name);
  return found == joint_kernels_.end() ? nullptr : found->second;
}

Kernel LaunchTable::find_if_present(const std::string& name) const {
  const auto found = kernels_.find(name);
  return found == kernels_.end() ? nullptr : found->second;
}

Kernel LaunchTable::find(const Op& op) const {
  if (const Kernel found = find_if_present(op.kernel)) return found;
  throw InvalidInput("op '" + op.name + "' needs the kernel '" + op.kernel +
                     "', which this device's launch table lacks; add it with LaunchTable::add");
}

LaunchTable cpu_launch_table() {
  LaunchTable table;
  cpu::add_transformer_kernels(table);
  cpu::add_update_kernels(table);
  return table;
}

LaunchTable cuda_launch_table() {
  const LoadedModule& loaded = cuda_module();
  if (loaded.module == nullptr) throw InvalidInput(loaded.reason);
  LaunchTable table;
  loaded.module->add_kernels(table);
  return table;
}

LaunchTable launch_table_for(const Device& device) {
  return device.info().backend == "cuda" ? cuda_launch_table() : cpu_launch_table();
}

}  // namespace stowage
