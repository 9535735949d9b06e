#include "stowage/online_recompute.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "offload/recompute/online_history.h"
#include "offload/recompute/online_memory.h"
#include "offload/recompute/online_pending.h"

namespace stowage {
namespace online {
namespace {

std::string why_it_stays(const Block& block) {
  const RememberedTensor& owner = *block.owner;
  if (block.busy) return "being written";
  if (owner.pins > 0) return "pinned";
  if (owner.kept) return owner.released ? "kept, because others are rebuilt from it" : "kept";
  return "read by an op that is about to run";
}

}  // namespace
}  // namespace online

using online::RememberedOp;
using online::RememberedTensor;

class OnlineRecompute::Implementation {
 public:
  Implementation(std::byte* memory, Bytes capacity, const OnlineOptions& options);

  OnlineTensor declare(std::string name, Bytes bytes);
  void run(OnlineOp op);
  const std::byte* pin(OnlineTensor id);
  void unpin(OnlineTensor id) { --history_.find(id).pins; }
  void keep(OnlineTensor id);
  void release(OnlineTensor id);
  bool is_live(OnlineTensor id) const { return history_.find(id).live(); }
  const OnlineStatistics& statistics() const { return statistics_; }
  std::size_t remembered() const { return history_.size(); }

 private:
  struct Output {
    RememberedTensor* tensor;
    Bytes offset;
    bool scratch;  // the tensor is live elsewhere, where it may not be touched
  };

  std::unique_ptr<RememberedOp> resolve(OnlineOp op) const;
  RememberedTensor& written(OnlineTensor id) const;
  RememberedTensor& materialise(OnlineTensor id);
  void run_with_what_it_needs(RememberedOp& op);
  void execute(RememberedOp& op, bool again);
  void place_outputs(RememberedOp& op, std::vector<Output>& outputs);
  void call(RememberedOp& op, const std::vector<Output>& outputs) const;
  void settle_outputs(const std::vector<Output>& outputs);
  Bytes make_room(RememberedTensor& tensor);
  bool evict_for(Bytes bytes);
  bool evict_window(Bytes bytes, bool spare_wanted);
  bool evict_single(bool spare_wanted);
  std::optional<double> price(const RememberedTensor& tensor, bool spare_wanted);
  void evict(RememberedTensor& tensor);
  void drop(RememberedTensor& tensor);
  void give_back(Bytes offset);
  OutOfMemory out_of_memory(const RememberedTensor& tensor);

  std::byte* const memory_;
  const OnlineOptions options_;
  online::OnlineMemory blocks_;
  online::OnlineHistory history_;
  OnlineStatistics statistics_;
  std::uint64_t clock_ = 0;  // ops run so far, the program's and those run again
};

OnlineRecompute::Implementation::Implementation(std::byte* memory, Bytes capacity,
                                                const OnlineOptions& options)
    : memory_(memory),
      options_(options),
      blocks_(options.alignment == 0 ? 0 : capacity / options.alignment * options.alignment) {
  if (options.alignment == 0 || (options.alignment & (options.alignment - 1)) != 0)
    throw InvalidInput(fmt::format("an alignment of {} bytes: give a power of two", options.alignment));
  if (reinterpret_cast<std::uintptr_t>(memory) % options.alignment != 0)
    throw InvalidInput(
        fmt::format("the range starts at no multiple of {} bytes: align it", options.alignment));
}

OnlineTensor OnlineRecompute::Implementation::declare(std::string name, Bytes bytes) {
  if (bytes == 0 || align_up(bytes, options_.alignment) < bytes)
    throw InvalidInput(
        fmt::format("tensor '{}' of {} bytes: give it at least 1, and less than memory has "
                    "addresses",
                    name, bytes));
  return history_.declare(std::move(name), align_up(bytes, options_.alignment)).id;
}

void OnlineRecompute::Implementation::run(OnlineOp op) {
  std::unique_ptr<RememberedOp> first = resolve(std::move(op));
  run_with_what_it_needs(*first);
  ++statistics_.ops;
  statistics_.op_seconds += first->seconds;
  if (!first->writes.empty()) history_.remember(std::move(first));
}

std::unique_ptr<RememberedOp> OnlineRecompute::Implementation::resolve(OnlineOp op) const {
  if (!op.work) throw InvalidInput(fmt::format("op '{}' has no work: give it a function", op.name));
  if (!(op.seconds >= 0) || !std::isfinite(op.seconds))
    throw InvalidInput(
        fmt::format("op '{}' takes {} seconds: give a cost of at least 0", op.name, op.seconds));
  auto result = std::make_unique<RememberedOp>();
  for (OnlineTensor id : op.reads) result->reads.push_back(&written(id));
  for (OnlineTensor id : op.writes) {
    RememberedTensor& tensor = history_.find(id);
    const bool twice =
        std::find(result->writes.begin(), result->writes.end(), &tensor) != result->writes.end();
    if (twice || tensor.producer != nullptr || tensor.live())
      throw InvalidInput(fmt::format("op '{}' writes '{}' a second time: declare a new tensor for it",
                                     op.name, tensor.name));
    result->writes.push_back(&tensor);
  }
  result->name = std::move(op.name);
  result->work = std::move(op.work);
  result->seconds = op.seconds;
  return result;
}

// A tensor that some op has written.
RememberedTensor& OnlineRecompute::Implementation::written(OnlineTensor id) const {
  RememberedTensor& tensor = history_.find(id);
  if (tensor.producer == nullptr && !tensor.live())
    throw InvalidInput(
        fmt::format("no op has written '{}': run the op that does before it is read", tensor.name));
  return tensor;
}

RememberedTensor& OnlineRecompute::Implementation::materialise(OnlineTensor id) {
  RememberedTensor& tensor = written(id);
  RememberedOp reader;
  reader.reads = {&tensor};
  run_with_what_it_needs(reader);
  tensor.last_use = clock_;
  return tensor;
}

// `op` itself is run once, what it reads as often as need be.
void OnlineRecompute::Implementation::run_with_what_it_needs(RememberedOp& op) {
  online::Pending pending;
  pending.push(op);
  while (!pending.empty()) {
    if (RememberedTensor* missing = pending.first_missing()) {
      pending.push(*missing->producer);
      continue;
    }
    if (pending.top().work) execute(pending.top(), &pending.top() != &op);
    pending.pop();
  }
}

void OnlineRecompute::Implementation::execute(RememberedOp& op, bool again) {
  ++clock_;
  for (RememberedTensor* read : op.reads) read->last_use = clock_;
  std::vector<Output> outputs;
  outputs.reserve(op.writes.size());
  try {
    place_outputs(op, outputs);
    call(op, outputs);
  } catch (...) {
    for (const Output& output : outputs) give_back(output.offset);
    throw;
  }
  settle_outputs(outputs);
  if (!again) return;
  ++statistics_.rebuilds;
  statistics_.rebuilt_seconds += op.seconds;
  for (const Output& output : outputs) statistics_.rebuilt_bytes += output.tensor->bytes;
}

// An op that is run again writes all of its results. One that is still there makes place for the new one,
// which has the same bits; if it must stay where it is, the new one is for nobody.
void OnlineRecompute::Implementation::place_outputs(RememberedOp& op, std::vector<Output>& outputs) {
  for (RememberedTensor* write : op.writes)
    if (write->evictable() && write->wanted == 0) drop(*write);
  for (RememberedTensor* write : op.writes) {
    const Bytes offset = make_room(*write);
    outputs.push_back({write, offset, write->live()});
  }
}

void OnlineRecompute::Implementation::call(RememberedOp& op, const std::vector<Output>& outputs) const {
  std::vector<const std::byte*> reads;
  std::vector<std::byte*> writes;
  for (const RememberedTensor* read : op.reads) reads.push_back(memory_ + *read->offset);
  for (const Output& output : outputs) writes.push_back(memory_ + output.offset);
  op.work({reads, writes});
}

void OnlineRecompute::Implementation::settle_outputs(const std::vector<Output>& outputs) {
  for (const Output& output : outputs) {
    blocks_.settle(output.offset);
    if (output.scratch || output.tensor->idle()) {
      give_back(output.offset);
      continue;
    }
    output.tensor->offset = output.offset;
    output.tensor->last_use = clock_;
  }
}

Bytes OnlineRecompute::Implementation::make_room(RememberedTensor& tensor) {
  for (;;) {
    if (const std::optional<Bytes> offset = blocks_.take(tensor.bytes, tensor)) {
      statistics_.live_bytes = blocks_.used_bytes();
      statistics_.peak_live_bytes = std::max(statistics_.peak_live_bytes, statistics_.live_bytes);
      statistics_.highest_byte = std::max(statistics_.highest_byte, *offset + tensor.bytes);
      return *offset;
    }
    if (!evict_for(tensor.bytes)) throw out_of_memory(tensor);
  }
}

// What a waiting op merely wants goes only where nothing else will do.
bool OnlineRecompute::Implementation::evict_for(Bytes bytes) {
  if (bytes > blocks_.capacity()) return false;
  for (bool spare_wanted : {true, false})
    if (options_.eviction == Eviction::window ? evict_window(bytes, spare_wanted)
                                              : evict_single(spare_wanted))
      return true;
  return false;
}

bool OnlineRecompute::Implementation::evict_window(Bytes bytes, bool spare_wanted) {
  const auto window = blocks_.cheapest_window(
      bytes, [&](const RememberedTensor& tensor) { return price(tensor, spare_wanted); });
  if (!window) return false;
  for (RememberedTensor* tensor : window->tensors) evict(*tensor);
  return true;
}

bool OnlineRecompute::Implementation::evict_single(bool spare_wanted) {
  RememberedTensor* cheapest = nullptr;
  double least = 0;
  for (const auto& [offset, block] : blocks_.blocks()) {
    if (block.owner == nullptr || block.busy) continue;
    const std::optional<double> each = price(*block.owner, spare_wanted);
    if (!each || (cheapest != nullptr && *each >= least)) continue;
    cheapest = block.owner;
    least = *each;
  }
  if (cheapest == nullptr) return false;
  evict(*cheapest);
  return true;
}

std::optional<double> OnlineRecompute::Implementation::price(const RememberedTensor& tensor,
                                                             bool spare_wanted) {
  if (!tensor.evictable() || (spare_wanted && tensor.wanted > 0)) return std::nullopt;
  const auto staleness = static_cast<double>(clock_ - tensor.last_use + 1);
  return history_.rebuild_seconds(tensor) / (static_cast<double>(tensor.bytes) * staleness);
}

void OnlineRecompute::Implementation::evict(RememberedTensor& tensor) {
  ++statistics_.evictions;
  statistics_.evicted_bytes += tensor.bytes;
  drop(tensor);
}

void OnlineRecompute::Implementation::drop(RememberedTensor& tensor) {
  const Bytes offset = *tensor.offset;
  tensor.offset.reset();
  give_back(offset);
}

void OnlineRecompute::Implementation::give_back(Bytes offset) {
  const Bytes bytes = blocks_.give_back(offset);
  statistics_.live_bytes = blocks_.used_bytes();
  if (options_.dropped) options_.dropped(memory_ + offset, bytes);
}

const std::byte* OnlineRecompute::Implementation::pin(OnlineTensor id) {
  RememberedTensor& tensor = materialise(id);
  ++tensor.pins;
  return memory_ + *tensor.offset;
}

void OnlineRecompute::Implementation::keep(OnlineTensor id) {
  materialise(id).kept = true;
  history_.collect(id, [this](RememberedTensor& idle) {
    if (idle.live()) drop(idle);
  });
}

void OnlineRecompute::Implementation::release(OnlineTensor id) {
  RememberedTensor& tensor = history_.find(id);
  if (tensor.pins > 0)
    throw InvalidInput(
        fmt::format("'{}' is released while it is pinned: let its pins go first", tensor.name));
  tensor.released = true;
  if (tensor.live() && !tensor.kept) drop(tensor);
  history_.collect(id, [this](RememberedTensor& idle) {
    if (idle.live()) drop(idle);
  });
}

OutOfMemory OnlineRecompute::Implementation::out_of_memory(const RememberedTensor& tensor) {
  std::string stays;
  Bytes evictable = 0;
  std::size_t count = 0;
  const auto may_go = [this](const RememberedTensor& each) { return price(each, false); };
  for (const auto& [offset, block] : blocks_.blocks()) {
    if (block.owner == nullptr) continue;
    if (!block.busy && block.owner->evictable()) {
      evictable += block.bytes;
      ++count;
    } else {
      stays += fmt::format("{}'{}' {} bytes at {} ({})", stays.empty() ? "" : ", ", block.owner->name,
                           block.bytes, offset, online::why_it_stays(block));
    }
  }
  return {
      fmt::format("'{}' needs {} bytes side by side, and of {} at most {} can be made free so: {} bytes are "
                  "free, {} tensors with {} bytes could go, these stay: {}; release, unpin or keep fewer, or "
                  "give more memory",
                  tensor.name, tensor.bytes, blocks_.capacity(), blocks_.largest_window(may_go),
                  blocks_.free_bytes(), count, evictable, stays.empty() ? "none" : stays),
      tensor.bytes, blocks_.free_bytes()};
}

OnlineRecompute::OnlineRecompute(std::byte* memory, Bytes capacity, const OnlineOptions& options)
    : implementation_(std::make_unique<Implementation>(memory, capacity, options)) {}

OnlineRecompute::~OnlineRecompute() = default;

OnlineTensor OnlineRecompute::declare(std::string name, Bytes bytes) {
  return implementation_->declare(std::move(name), bytes);
}

void OnlineRecompute::run(OnlineOp op) { implementation_->run(std::move(op)); }

OnlineRecompute::Pin OnlineRecompute::pin(OnlineTensor tensor) {
  return {*this, tensor, implementation_->pin(tensor)};
}

OnlineRecompute::Pin::~Pin() {
  if (owner_ != nullptr) owner_->implementation_->unpin(tensor_);
}

void OnlineRecompute::keep(OnlineTensor tensor) { implementation_->keep(tensor); }

void OnlineRecompute::release(OnlineTensor tensor) { implementation_->release(tensor); }

bool OnlineRecompute::is_live(OnlineTensor tensor) const { return implementation_->is_live(tensor); }

const OnlineStatistics& OnlineRecompute::statistics() const { return implementation_->statistics(); }

std::size_t OnlineRecompute::remembered() const { return implementation_->remembered(); }

}  // namespace stowage
