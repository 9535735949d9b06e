#include "stowage/engine_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "stowage/error.h"

namespace stowage {
namespace {

// Calls work(rank) for each rank, on a thread of its own but for the first. `abandon`: what the others may
// wait for does not come.
void on_ranks(std::size_t ranks, const std::function<void(std::size_t)>& work,
              const std::function<void(const char* why)>& abandon) {
  std::vector<std::exception_ptr> errors(ranks);
  const auto guarded = [&](std::size_t rank) {
    try {
      work(rank);
    } catch (...) {
      errors[rank] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  try {
    for (std::size_t rank = 1; rank < ranks; ++rank) threads.emplace_back(guarded, rank);
    guarded(0);
  } catch (const std::system_error& error) {  // no thread could be started
    errors[0] = std::current_exception();
    abandon(error.what());
  }
  for (std::thread& thread : threads) thread.join();
  std::exception_ptr of_another;
  for (const std::exception_ptr& error : errors) {
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const CommunicatorError&) {
      of_another = error;
    }
  }
  if (of_another) std::rethrow_exception(of_another);
}

// By tensor of `whole`: that of the same name in a rank's graph; no_id where it has none.
std::vector<TensorId> same_tensors(const Graph& whole, const Graph& rank) {
  std::map<std::string_view, TensorId> by_name;
  for (TensorId id = 0; id < rank.tensors.size(); ++id) by_name[rank.tensor(id).name] = id;
  std::vector<TensorId> same(whole.tensors.size(), no_id);
  for (TensorId id = 0; id < whole.tensors.size(); ++id) {
    const Tensor& tensor = whole.tensor(id);
    const auto found = by_name.find(tensor.name);
    if (found != by_name.end()) same[id] = found->second;
  }
  return same;
}

bool lives_across_steps(const Tensor& tensor) {
  return tensor.kind == TensorKind::parameter || tensor.kind == TensorKind::optimizer_state;
}

void require_ranks_of(const Graph& whole, std::span<const Graph> ranks, std::size_t devices) {
  const auto refuse = [](const std::string& what) {
    throw InvalidInput("EngineGroup: " + what + "; build them from one model");
  };
  if (devices == 0 || (ranks.empty() ? devices > 1 : ranks.size() != devices))
    refuse(fmt::format("{} graphs of ranks for {} devices", ranks.size(), devices));
  if (whole.share.ranks != 1) refuse("the whole graph is that of a rank");
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const BatchShare share{static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(ranks.size())};
    const Graph& graph = ranks[rank];
    if (graph.gradient_groups * ranks.size() != whole.gradient_groups ||
        graph.micro_batches * ranks.size() != whole.micro_batches)
      refuse(fmt::format("{} ranks of {} micro-batches in {} groups are not the {} in {} of the whole graph",
                         ranks.size(), graph.micro_batches, graph.gradient_groups, whole.micro_batches,
                         whole.gradient_groups));
    if (ranks[rank].share != share)
      refuse(fmt::format("graph {} is that of rank {} of {}", rank, ranks[rank].share.rank,
                         ranks[rank].share.ranks));
    const std::vector<TensorId> same = same_tensors(whole, ranks[rank]);
    for (TensorId id = 0; id < whole.tensors.size(); ++id) {
      const Tensor& tensor = whole.tensor(id);
      if (!lives_across_steps(tensor) && tensor.kind != TensorKind::input) continue;
      const bool there = same[id] != no_id && ranks[rank].tensor(same[id]).kind == tensor.kind &&
                         ranks[rank].tensor(same[id]).type == tensor.type;
      const Bytes all = there ? ranks.size() * ranks[rank].tensor(same[id]).bytes() : 0;
      if (all < tensor.bytes()) refuse(fmt::format("rank {} has no share of '{}'", rank, tensor.name));
    }
  }
}

}  // namespace

class EngineGroup::Implementation {
 public:
  Implementation(std::span<Device* const> devices, const Graph& whole, std::span<const Graph> ranks,
                 const Plan& plan, const EngineOptions& options, const CommunicatorOptions& link)
      : whole_(whole),
        ranks_(ranks.begin(), ranks.end()),
        inputs_(devices.size()),
        reports_(devices.size()),
        engines_(devices.size()) {
    require_ranks_of(whole, ranks, devices.size());
    if (devices.size() > 1) communicators_ = make_local_communicators(devices, link);
    for (const Graph& rank : ranks_) same_.push_back(same_tensors(whole_, rank));
    run([&](std::size_t rank) {
      EngineOptions own = options;
      own.communicator = devices.size() > 1 ? communicators_[rank].get() : nullptr;
      const Graph& graph = ranks_.empty() ? whole_ : ranks_[rank];
      engines_[rank] = std::make_unique<Engine>(*devices[rank], graph, plan, own);
    });
  }

  std::size_t size() const { return engines_.size(); }
  Engine& engine(std::size_t rank) const { return *engines_[rank]; }
  std::span<const StepReport> reports() const { return reports_; }

  StepReport step(std::span<const InputData> inputs, const StepOptions& options) {
    lost_ = size() > 1;  // until all have made it
    run([&](std::size_t rank) {
      std::vector<InputData>& own = inputs_[rank];
      own.assign(inputs.begin(), inputs.end());
      for (InputData& input : own) input.tensor = tensor_of(input.tensor, rank);
      reports_[rank] = engines_[rank]->step(own, options);
    });
    lost_ = false;
    StepReport report = reports_[0];
    for (const StepReport& of_rank : reports_)
      report.device_peak_bytes = std::max(report.device_peak_bytes, of_rank.device_peak_bytes);
    return report;
  }
  void drain() {
    run([&](std::size_t rank) { engines_[rank]->drain(); });
  }

  // Of a rank's share of the tensor's value.
  struct Share {
    Engine& engine;
    TensorId tensor;
    Bytes begin, end;  // of the whole value, without padding
  };
  // Calls work(share, from, to) for each share that has some of [offset, offset + bytes) of the value: [from,
  // to).
  template <class Work>
  void for_each_share(TensorId tensor, Bytes offset, Bytes bytes, Work work) {
    require_inside(tensor, offset, bytes);
    for (std::size_t rank = 0; rank < size(); ++rank) {
      const Share share = share_of(tensor, rank);
      const Bytes from = std::max(share.begin, offset), to = std::min(share.end, offset + bytes);
      if (from < to) work(share, from, to);
    }
  }
  // Padding is zero.
  void fill(TensorId tensor, const Engine::FillPiece& piece) {
    require_inside(tensor, 0, 0);
    for (std::size_t rank = 0; rank < size(); ++rank) {
      const Share share = share_of(tensor, rank);
      share.engine.fill(share.tensor, [&](Bytes offset, std::span<std::byte> part) {
        const Bytes from = std::min(share.end, share.begin + offset);
        const Bytes count = std::min(static_cast<Bytes>(part.size()), share.end - from);
        if (count > 0) piece(from, part.first(count));
        std::fill(part.begin() + static_cast<std::ptrdiff_t>(count), part.end(), std::byte{0});
      });
    }
  }
  Bytes bytes_of(TensorId tensor) const {
    require_inside(tensor, 0, 0);
    return whole_.tensor(tensor).bytes();
  }

 private:
  void run(const std::function<void(std::size_t)>& work) {
    on_ranks(size(), work, [this](const char* why) {
      for (const auto& communicator : communicators_) communicator->abort(why);
    });
  }
  void require_inside(TensorId tensor, Bytes offset, Bytes bytes) const {
    if (lost_)
      throw DeviceError(
          "a step has failed, behind which devices may differ: make a new group and restore a checkpoint",
          "step");
    if (tensor >= whole_.tensors.size() || !lives_across_steps(whole_.tensor(tensor)))
      throw InvalidInput(
          fmt::format("tensor {} keeps no value from step to step: only parameters and optimizer state can "
                      "be read and written",
                      tensor < whole_.tensors.size() ? whole_.tensor(tensor).name : std::to_string(tensor)));
    const Bytes all = whole_.tensor(tensor).bytes();
    if (offset > all || bytes > all - offset)
      throw InvalidInput(fmt::format("'{}' has {} bytes, and {} from {} on are not all of them",
                                     whole_.tensor(tensor).name, all, bytes, offset));
  }
  TensorId tensor_of(TensorId tensor, std::size_t rank) const {
    if (ranks_.empty()) return tensor;
    return tensor < same_[rank].size() ? same_[rank][tensor] : no_id;
  }
  Share share_of(TensorId tensor, std::size_t rank) const {
    const Bytes all = whole_.tensor(tensor).bytes();
    const TensorId own = tensor_of(tensor, rank);
    const Bytes bytes = ranks_.empty() ? all : ranks_[rank].tensor(own).bytes();
    const Bytes begin = std::min(all, rank * bytes);
    return {*engines_[rank], own, begin, std::min(all, begin + bytes)};
  }

  const Graph whole_;
  const std::vector<Graph> ranks_;  // empty: one device
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::vector<std::vector<TensorId>> same_;  // by rank, by tensor of the whole
  std::vector<std::vector<InputData>> inputs_;
  std::vector<StepReport> reports_;
  std::vector<std::unique_ptr<Engine>> engines_;
  bool lost_ = false;
};

EngineGroup::EngineGroup(std::span<Device* const> devices, const Graph& whole, std::span<const Graph> ranks,
                         const Plan& plan, const EngineOptions& options, const CommunicatorOptions& link)
    : implementation_(std::make_unique<Implementation>(devices, whole, ranks, plan, options, link)) {}

EngineGroup::EngineGroup(Device& device, const Graph& graph, const Plan& plan, const EngineOptions& options)
    : EngineGroup(std::array{&device}, graph, {}, plan, options) {}

EngineGroup::~EngineGroup() = default;

std::size_t EngineGroup::size() const { return implementation_->size(); }

StepReport EngineGroup::step(std::span<const InputData> inputs, const StepOptions& options) {
  return implementation_->step(inputs, options);
}

std::span<const StepReport> EngineGroup::reports() const { return implementation_->reports(); }

void EngineGroup::drain() { implementation_->drain(); }

std::uint64_t EngineGroup::completed_steps() const { return implementation_->engine(0).completed_steps(); }

std::span<const BucketId> EngineGroup::unpinned() const {
  for (std::size_t rank = 0; rank < size(); ++rank)
    if (const auto buckets = implementation_->engine(rank).unpinned(); !buckets.empty()) return buckets;
  return {};
}

std::vector<Interval> EngineGroup::last_timeline() { return implementation_->engine(0).last_timeline(); }

std::vector<std::byte> EngineGroup::read(TensorId tensor) {
  std::vector<std::byte> value(implementation_->bytes_of(tensor));
  read(tensor, 0, value);
  return value;
}

void EngineGroup::read(TensorId tensor, Bytes offset, std::span<std::byte> into) {
  implementation_->for_each_share(tensor, offset, into.size(), [&](const auto& share, Bytes from, Bytes to) {
    share.engine.read(share.tensor, from - share.begin, into.subspan(from - offset, to - from));
  });
}

void EngineGroup::write(TensorId tensor, std::span<const std::byte> value) {
  const Bytes bytes = implementation_->bytes_of(tensor);
  if (value.size() != bytes)
    throw InvalidInput(fmt::format("a value of {} bytes is given to a tensor of {}", value.size(), bytes));
  write(tensor, 0, value);
}

void EngineGroup::write(TensorId tensor, Bytes offset, std::span<const std::byte> value) {
  implementation_->for_each_share(tensor, offset, value.size(), [&](const auto& share, Bytes from, Bytes to) {
    share.engine.write(share.tensor, from - share.begin, value.subspan(from - offset, to - from));
  });
}

void EngineGroup::fill(TensorId tensor, const Engine::FillPiece& piece) {
  implementation_->fill(tensor, piece);
}

}  // namespace stowage
