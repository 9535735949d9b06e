#include "stowage/engine_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "offload/engine/local_ranks.h"
#include "offload/engine/value_exchange.h"
#include "stowage/error.h"

namespace stowage {
namespace {

// Returns, by tensor of `whole`, the tensor of the same name in a rank's graph; no_id if there is none.
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

[[noreturn]] void refuse(const std::string& what) {
  throw InvalidInput("EngineGroup: " + what + "; build them from one model");
}

void require_rank_of(const Graph& whole, const Graph& graph, std::size_t rank, std::size_t ranks) {
  const BatchShare share{static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(ranks)};
  if (graph.gradient_groups * ranks != whole.gradient_groups ||
      graph.micro_batches * ranks != whole.micro_batches)
    refuse(fmt::format("{} ranks of {} micro-batches in {} groups are not the {} in {} of the whole graph",
                       ranks, graph.micro_batches, graph.gradient_groups, whole.micro_batches,
                       whole.gradient_groups));
  if (graph.share != share)
    refuse(fmt::format("graph {} is that of rank {} of {}", rank, graph.share.rank, graph.share.ranks));
  const std::vector<TensorId> same = same_tensors(whole, graph);
  for (TensorId id = 0; id < whole.tensors.size(); ++id) {
    const Tensor& tensor = whole.tensor(id);
    if (!lives_across_steps(tensor) && tensor.kind != TensorKind::input) continue;
    const bool there = same[id] != no_id && graph.tensor(same[id]).kind == tensor.kind &&
                       graph.tensor(same[id]).type == tensor.type;
    const Bytes all = there ? ranks * graph.tensor(same[id]).bytes() : 0;
    if (all < tensor.bytes()) refuse(fmt::format("rank {} has no share of '{}'", rank, tensor.name));
  }
}

// `ranks`: the graphs of this process's ranks, from rank `first` on. `all`: how many ranks all processes
// have.
void require_ranks_of(const Graph& whole, std::span<const Graph> ranks, std::size_t first, std::size_t all) {
  if (whole.share.ranks != 1) refuse("the whole graph is that of a rank");
  for (std::size_t i = 0; i < ranks.size(); ++i) require_rank_of(whole, ranks[i], first + i, all);
}

void require_graph_of_each(std::span<const Graph> ranks, std::size_t devices) {
  if (devices == 0 || (ranks.empty() ? devices > 1 : ranks.size() != devices))
    refuse(fmt::format("{} graphs of ranks for {} devices", ranks.size(), devices));
}

}  // namespace

class EngineGroup::Implementation {
 public:
  Implementation(std::span<Device* const> devices, const Graph& whole, std::span<const Graph> ranks,
                 const Plan& plan, const EngineOptions& options, const CommunicatorOptions& link)
      : whole_(whole), ranks_(ranks.begin(), ranks.end()), all_ranks_(devices.size()) {
    require_graph_of_each(ranks, devices.size());
    require_ranks_of(whole, ranks, 0, all_ranks_);
    if (devices.size() > 1) communicators_ = open_communicators(devices, link);
    std::vector<Communicator*> communicators;
    for (const auto& communicator : communicators_) communicators.push_back(communicator.get());
    if (communicators.empty()) communicators.push_back(nullptr);
    start(devices, communicators, plan, options);
  }
  Implementation(Device& device, Communicator& communicator, const Graph& whole, const Graph& rank,
                 const Plan& plan, const EngineOptions& options)
      : whole_(whole),
        ranks_{rank},
        first_rank_(static_cast<std::size_t>(communicator.rank())),
        all_ranks_(static_cast<std::size_t>(communicator.size())) {
    require_ranks_of(whole, ranks_, first_rank_, all_ranks_);
    start(std::array{&device}, std::array{&communicator}, plan, options);
    if (all_ranks_ > 1) exchange_.emplace(device, communicator);
  }

  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;
  // Communicators must be destroyed together.
  ~Implementation() {
    engines_.clear();
    close_communicators(communicators_);
  }

  std::size_t size() const { return all_ranks_; }
  std::span<const std::unique_ptr<Engine>> engines() const { return engines_; }
  std::span<const StepReport> reports() const { return reports_; }

  StepReport step(std::span<const InputData> inputs, const StepOptions& options) {
    lost_ = size() > 1;  // true until all ranks have made the step
    run([&](std::size_t i) {
      std::vector<InputData>& own = inputs_[i];
      own.assign(inputs.begin(), inputs.end());
      for (InputData& input : own) input.tensor = tensor_of(input.tensor, i);
      reports_[i] = engines_[i]->step(own, options);
    });
    lost_ = false;
    StepReport report = reports_[0];
    for (const StepReport& of_rank : reports_)
      report.device_peak_bytes = std::max(report.device_peak_bytes, of_rank.device_peak_bytes);
    return report;
  }
  void drain() {
    run([&](std::size_t i) { engines_[i]->drain(); });
  }

  void read(TensorId tensor, Bytes offset, std::span<std::byte> into) {
    require_inside(tensor, offset, into.size());
    if (leading_) exchange_->tell({tensor, offset, into.size()});
    read_part(tensor, offset, into.size(), into.data());
  }
  void write(TensorId tensor, Bytes offset, std::span<const std::byte> value) {
    for_each_share(tensor, offset, value.size(), [&](const Share& share, Bytes from, Bytes to) {
      if (share.engine == nullptr) return;
      share.engine->write(share.tensor, from - share.begin, value.subspan(from - offset, to - from));
    });
  }
  // Fills padding with zeros.
  void fill(TensorId tensor, const Engine::FillPiece& piece) {
    require_inside(tensor, 0, 0);
    for (std::size_t rank = 0; rank < size(); ++rank) {
      const Share share = share_of(tensor, rank);
      if (share.engine == nullptr) {
        make_in_vain(share.begin, share.end, piece);
        continue;
      }
      share.engine->fill(share.tensor, [&](Bytes offset, std::span<std::byte> part) {
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

  void on_first(const std::function<void()>& work) {
    if (!exchange_ || leading_) return work();
    if (first_rank_ != 0) return serve_reads();
    std::exception_ptr failure;
    leading_ = true;
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
    leading_ = false;
    try {
      exchange_->tell(no_more);
    } catch (const Error&) {
      if (!failure) throw;  // otherwise every rank ends with the failure
    }
    if (failure) std::rethrow_exception(failure);
  }

 private:
  // A rank's part of a tensor's value.
  struct Share {
    Engine* engine;  // null: another process has the rank
    std::size_t rank;
    TensorId tensor;
    Bytes begin, end;  // byte range in the whole value, without padding
  };
  static constexpr ValueRequest no_more{no_id, 0, 0};

  void start(std::span<Device* const> devices, std::span<Communicator* const> communicators, const Plan& plan,
             const EngineOptions& options) {
    inputs_.resize(devices.size());
    reports_.resize(devices.size());
    engines_.resize(devices.size());
    for (const Graph& rank : ranks_) same_.push_back(same_tensors(whole_, rank));
    run([&](std::size_t i) {
      EngineOptions own = options;
      own.communicator = communicators[i];
      const Graph& graph = ranks_.empty() ? whole_ : ranks_[i];
      engines_[i] = std::make_unique<Engine>(*devices[i], graph, plan, own);
    });
  }
  // Calls work(i) for each rank of this process, on a thread for each.
  void run(const std::function<void(std::size_t)>& work) {
    on_ranks(engines_.size(), work, [this](const char* why) {
      for (const auto& communicator : communicators_) communicator->abort(why);
    });
  }
  void serve_reads() {
    for (;;) {
      const ValueRequest request = exchange_->told();
      if (request.tensor == no_more.tensor) return;
      read_part(request.tensor, request.offset, request.bytes, nullptr);
    }
  }
  // `into` null: only other processes get the bytes.
  void read_part(TensorId tensor, Bytes offset, Bytes bytes, std::byte* into) {
    if (exchange_) drain();  // no lane may use the communicator during the exchange
    for_each_share(tensor, offset, bytes, [&](const Share& share, Bytes from, Bytes to) {
      const auto read = [&](Bytes at, std::span<std::byte> part) {
        share.engine->read(share.tensor, from - share.begin + at, part);
      };
      std::byte* const place = into == nullptr ? nullptr : into + (from - offset);
      if (!exchange_) return read(0, {place, to - from});
      exchange_->send(static_cast<int>(share.rank), to - from, read, place);
    });
  }
  // Makes bytes that only other processes keep, and drops them, so that a file is still read
  // from begin to end.
  static void make_in_vain(Bytes begin, Bytes end, const Engine::FillPiece& piece) {
    std::vector<std::byte> unused(std::min(ValueExchange::most_bytes, end - begin));
    for (Bytes from = begin; from < end; from += unused.size())
      piece(from, std::span(unused).first(std::min<Bytes>(unused.size(), end - from)));
  }
  // Calls work(share, from, to) for each share that has bytes [from, to) of the value's [offset, offset +
  // bytes).
  template <class Work>
  void for_each_share(TensorId tensor, Bytes offset, Bytes bytes, Work work) {
    require_inside(tensor, offset, bytes);
    for (std::size_t rank = 0; rank < size(); ++rank) {
      const Share share = share_of(tensor, rank);
      const Bytes from = std::max(share.begin, offset), to = std::min(share.end, offset + bytes);
      if (from < to) work(share, from, to);
    }
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
  // Returns the tensor in the graph of this process's rank `i`.
  TensorId tensor_of(TensorId tensor, std::size_t i) const {
    if (ranks_.empty()) return tensor;
    return tensor < same_[i].size() ? same_[i][tensor] : no_id;
  }
  // Shares are alike, so any rank's graph tells the shares of all ranks.
  Share share_of(TensorId tensor, std::size_t rank) const {
    const bool here = rank >= first_rank_ && rank - first_rank_ < engines_.size();
    const std::size_t i = here ? rank - first_rank_ : 0;
    const Bytes all = whole_.tensor(tensor).bytes();
    const TensorId own = tensor_of(tensor, i);
    const Bytes bytes = ranks_.empty() ? all : ranks_[i].tensor(own).bytes();
    const Bytes begin = std::min(all, rank * bytes);
    return {here ? engines_[i].get() : nullptr, rank, own, begin, std::min(all, begin + bytes)};
  }

  const Graph whole_;
  const std::vector<Graph> ranks_;    // graphs of this process's ranks; empty: one device
  const std::size_t first_rank_ = 0;  // number of this process's first rank
  const std::size_t all_ranks_;
  Communicators communicators_;
  // By rank of this process and tensor of the whole graph: the rank's tensor.
  std::vector<std::vector<TensorId>> same_;
  std::vector<std::vector<InputData>> inputs_;
  std::vector<StepReport> reports_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::optional<ValueExchange> exchange_;  // present if other processes have ranks
  bool leading_ = false;                   // true within `on_first`, on rank 0
  bool lost_ = false;
};

EngineGroup::EngineGroup(std::span<Device* const> devices, const Graph& whole, std::span<const Graph> ranks,
                         const Plan& plan, const EngineOptions& options, const CommunicatorOptions& link)
    : implementation_(std::make_unique<Implementation>(devices, whole, ranks, plan, options, link)) {}

EngineGroup::EngineGroup(Device& device, Communicator& communicator, const Graph& whole, const Graph& rank,
                         const Plan& plan, const EngineOptions& options)
    : implementation_(std::make_unique<Implementation>(device, communicator, whole, rank, plan, options)) {}

EngineGroup::EngineGroup(Device& device, const Graph& graph, const Plan& plan, const EngineOptions& options)
    : EngineGroup(std::array{&device}, graph, {}, plan, options) {}

EngineGroup::~EngineGroup() = default;

std::size_t EngineGroup::size() const { return implementation_->size(); }

Engine& EngineGroup::only() {
  if (size() > 1)
    throw InvalidInput(
        fmt::format("the group has {} engines: ask it for the only one of one device", size()));
  return *implementation_->engines().front();
}

StepReport EngineGroup::step(std::span<const InputData> inputs, const StepOptions& options) {
  return implementation_->step(inputs, options);
}

std::span<const StepReport> EngineGroup::reports() const { return implementation_->reports(); }

void EngineGroup::drain() { implementation_->drain(); }

std::uint64_t EngineGroup::completed_steps() const {
  return implementation_->engines().front()->completed_steps();
}

std::span<const BucketId> EngineGroup::unpinned() const {
  for (const auto& engine : implementation_->engines())
    if (const auto buckets = engine->unpinned(); !buckets.empty()) return buckets;
  return {};
}

std::vector<Interval> EngineGroup::last_timeline() {
  return implementation_->engines().front()->last_timeline();
}

std::vector<std::byte> EngineGroup::read(TensorId tensor) {
  std::vector<std::byte> value(implementation_->bytes_of(tensor));
  read(tensor, 0, value);
  return value;
}

void EngineGroup::read(TensorId tensor, Bytes offset, std::span<std::byte> into) {
  implementation_->read(tensor, offset, into);
}

void EngineGroup::write(TensorId tensor, std::span<const std::byte> value) {
  const Bytes bytes = implementation_->bytes_of(tensor);
  if (value.size() != bytes)
    throw InvalidInput(fmt::format("a value of {} bytes is given to a tensor of {}", value.size(), bytes));
  write(tensor, 0, value);
}

void EngineGroup::write(TensorId tensor, Bytes offset, std::span<const std::byte> value) {
  implementation_->write(tensor, offset, value);
}

void EngineGroup::fill(TensorId tensor, const Engine::FillPiece& piece) {
  implementation_->fill(tensor, piece);
}

void EngineGroup::on_first(const std::function<void()>& work) { implementation_->on_first(work); }

}  // namespace stowage
