#include "kernels/cuda/attention.h"

#include <fmt/core.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <utility>

#include "src/base/mutex.h"
#include "stowage/error.h"

namespace stowage::cuda {
namespace {

std::string describe(const AttentionShape& shape, bool backward) {
  std::string text =
      fmt::format("attention of {} samples, {} heads of {} elements, sequence {}{}{}{}", shape.samples,
                  shape.heads, shape.head_width(), shape.sequence, shape.causal ? ", causal" : "",
                  shape.seen != nullptr ? ", padding" : "", shape.dropout > 0 ? ", dropout" : "");
  if (shape.group() > 1) text += fmt::format(", {} key heads", shape.key_heads);
  if (shape.window > 0) text += fmt::format(", window {}", shape.window);
  if (shape.begins != nullptr) text += ", documents";
  return text + (backward ? ", backward" : ", forward");
}

class Refusals {
 public:
  void add(const AttentionShape& shape, bool backward, std::string_view reason) STOWAGE_EXCLUDES(mutex_) {
    const Key key{
        {shape.samples, shape.heads, shape.sequence, shape.width, shape.key_heads, shape.window},
        {shape.causal, backward, shape.seen != nullptr, shape.begins != nullptr, shape.dropout > 0}};
    const MutexLock lock(mutex_);
    if (!known_.insert(key).second) return;
    told_.push_back(fmt::format("{}: computed by our own kernels, since cuDNN does not: {}",
                                describe(shape, backward), reason));
    std::fprintf(stderr, "stowage: %s\n", told_.back().c_str());
  }
  std::vector<std::string> messages() STOWAGE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return told_;
  }

 private:
  using Key = std::pair<std::array<std::int64_t, 6>, std::array<bool, 5>>;
  Mutex mutex_;
  std::set<Key> known_ STOWAGE_GUARDED_BY(mutex_);
  std::vector<std::string> told_ STOWAGE_GUARDED_BY(mutex_);
};

struct Use {
  std::array<std::atomic<std::uint64_t>, 3> launches{};
  Refusals refusals;
};

Use& use() {
  static auto& kept = *new Use;  // used until the process has ended
  return kept;
}

std::uint64_t launches(AttentionMethod method) {
  return use().launches[static_cast<std::size_t>(method)].load(std::memory_order_relaxed);
}

}  // namespace

AttentionChoice attention_choice() {
  const char* const value = std::getenv("STOWAGE_ATTENTION");
  const std::string_view choice = value == nullptr ? "" : value;
  if (choice.empty() || choice == "auto") return AttentionChoice::automatic;
  if (choice == "cudnn") return AttentionChoice::cudnn;
  if (choice == "own") return AttentionChoice::own;
  throw InvalidInput(fmt::format("STOWAGE_ATTENTION={}: unknown; set cudnn, own or auto", choice));
}

void count_attention(AttentionMethod method) {
  use().launches[static_cast<std::size_t>(method)].fetch_add(1, std::memory_order_relaxed);
}

void refuse_cudnn(AttentionChoice choice, const AttentionShape& shape, bool backward,
                  std::string_view reason) {
  if (choice == AttentionChoice::cudnn)
    throw InvalidInput(
        fmt::format("{}: cuDNN does not compute it ({}), and STOWAGE_ATTENTION=cudnn allows nothing else: "
                    "set auto to let "
                    "our own kernels compute it",
                    describe(shape, backward), reason));
  use().refusals.add(shape, backward, reason);
}

AttentionUse attention_use() {
  return {launches(AttentionMethod::cudnn), launches(AttentionMethod::own), launches(AttentionMethod::plain),
          use().refusals.messages()};
}

}  // namespace stowage::cuda
