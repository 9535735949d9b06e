#include "offload/plan/validate/report.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace stowage::validation {
namespace {

constexpr std::array<std::string_view, 7> kind_words{
    "launch of", "recompute of", "prefetch of", "offload of", "gate of", "commit of", "speculation of"};

}  // namespace

void Report::add(std::string sentence) {
  if (!is_full() && known_.insert(sentence).second) findings_.push_back(std::move(sentence));
}

std::string Report::instruction(InstructionId id) const {
  if (id >= plan_.instructions.size()) return fmt::format("instruction {} (which the plan lacks)", id);
  const Instruction& instruction = plan_.instructions[id];
  const bool transfer = is_transfer(instruction.kind);
  std::string object = op(instruction.op);
  if (transfer && instruction.lifetime < plan_.lifetimes.size()) {
    object = bucket(plan_.lifetimes[instruction.lifetime].bucket);
  } else if (transfer) {
    object = lifetime(instruction.lifetime);
  }
  return fmt::format("instruction {} ({} {})", id, kind_words.at(static_cast<std::size_t>(instruction.kind)),
                     object);
}

std::string Report::lifetime(LifetimeId id) const {
  if (id >= plan_.lifetimes.size()) return fmt::format("lifetime {} (which the plan lacks)", id);
  return fmt::format("lifetime {} of {}", id, bucket(plan_.lifetimes[id].bucket));
}

std::string Report::bucket(BucketId id) const {
  if (id >= plan_.buckets.size()) return fmt::format("bucket {} (which the plan lacks)", id);
  return fmt::format("bucket '{}'", plan_.buckets[id].name);
}

std::string Report::tensor(TensorId id) const {
  if (id >= graph_.tensors.size()) return fmt::format("tensor {} (which the graph lacks)", id);
  return fmt::format("'{}'", graph_.tensor(id).name);
}

std::string Report::op(OpId id) const {
  if (id >= graph_.ops.size()) return fmt::format("op {} (which the graph lacks)", id);
  return fmt::format("op '{}'", graph_.op(id).name);
}

}  // namespace stowage::validation
