#include "src/machine/machine_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "src/base/printable.h"

namespace stowage {

std::string describe_machine(const MachineFile& file) {
  const bool dated =
      !file.measured.empty() && std::isdigit(static_cast<unsigned char>(file.measured.front()));
  const std::string several =
      file.peers && file.peers->devices > 1 ? fmt::format("{} x ", file.peers->devices) : "";
  return fmt::format("{}{} on {}, {}{}", several, printable(file.device), printable(file.host),
                     dated ? "measured " : "", printable(file.measured));
}

DataType usual_type(const MachineFile& file) {
  const bool has = std::any_of(file.matrix.begin(), file.matrix.end(),
                               [](const MatrixRate& rate) { return rate.type == DataType::bf16; });
  return has && file.backend == "cuda" ? DataType::bf16 : DataType::f32;
}

}  // namespace stowage
