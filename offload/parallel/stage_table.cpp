#include "offload/parallel/stage_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "offload/parallel/crossing_bytes.h"
#include "offload/parallel/variant_choice.h"
#include "stowage/error.h"

namespace stowage {
namespace {

constexpr std::size_t most_solved_stages = std::size_t{1} << 22U;

// Layouts that some layer has variants for; behind them, for each number of devices at which layers of unlike
// parts or split may follow one another, one that mixes them.
std::vector<StageLayout> layouts_of(const ParallelCosts& costs) {
  std::set<std::tuple<int, int, int>> found;  // devices, split, parts
  std::map<std::string, std::set<std::pair<int, int>>> by_name;
  for (const ParallelLayer& layer : costs.layers) {
    for (const LayerVariant& variant : layer.variants) {
      found.insert({variant.devices(), variant.split, variant.parts});
      by_name[variant.name].insert({variant.parts, variant.split});
    }
  }
  std::vector<StageLayout> layouts;
  for (const auto& [devices, split, parts] : found) layouts.push_back({parts, split, devices, false});
  std::set<int> mixed;
  for (const VariantChange& change : costs.changes) {
    for (const auto& from : by_name[change.from]) {
      for (const auto& to : by_name[change.to]) {
        if (from != to && from.first * from.second == to.first * to.second)
          mixed.insert(from.first * from.second);
      }
    }
  }
  for (const int devices : mixed) layouts.push_back({0, 0, devices, true});
  return layouts;
}

struct Sends {
  double front = 0, back = 0;  // seconds of a micro-batch, forward and backward together
};

// Returns the option of a stage with these totals and sends.
StageOption option_of(const ParallelCosts& costs, const VariantTotals& totals, const Sends& sends) {
  StageOption option;
  option.tail = totals.to_end() - totals.seconds;
  if (costs.sending == Sending::within) {
    option.way = option.pace = totals.seconds + sends.front + sends.back;
    return option;
  }
  // Each of two neighbours counts the direction in which it sends.
  option.way = totals.seconds + (sends.front + sends.back) / 2;
  option.pace = std::max({totals.seconds, sends.front, sends.back});
  return option;
}

}  // namespace

class StageTable::Body {
 public:
  explicit Body(const ParallelCosts& costs)
      : costs_(costs),
        layouts_(layouts_of(costs)),
        crossing_(costs),
        choice_(costs, layouts_, most_stage_labels) {
    const std::size_t stages = choice_.sequence_count() * layouts_.size();
    if (stages > most_solved_stages) {
      throw InvalidInput(
          fmt::format("parallel costs: {} different stages in {} layouts are {}, and {} is the most; merge "
                      "layers, or give fewer "
                      "kinds of variants",
                      choice_.sequence_count(), layouts_.size(), stages, most_solved_stages));
    }
    const bool no_bytes_in_flight =
        std::all_of(costs.layers.begin(), costs.layers.end(), [](const ParallelLayer& layer) {
          return std::all_of(layer.variants.begin(), layer.variants.end(),
                             [](const LayerVariant& each) { return each.bytes_in_flight == 0; });
        });
    index_counts_ =
        costs.memory != unlimited && costs.order == PipelineOrder::one_f_one_b && !no_bytes_in_flight;
  }

  const std::vector<StageLayout>& layouts() const { return layouts_; }
  int layers() const { return static_cast<int>(costs_.layers.size()); }
  bool exact() const { return choice_.exact(); }
  std::uint64_t work() const { return choice_.work(); }

  // Returns what a stage adds to the index if the index counts.
  int full_step(int layout) const {
    return costs_.in_flight == InFlight::parts ? layouts_[static_cast<std::size_t>(layout)].parts : 1;
  }
  int index_step(int layout) const { return index_counts_ ? full_step(layout) : 0; }

  // Returns the micro-batches in flight at an index of full steps.
  std::int64_t in_flight(int layout, std::int64_t index) const {
    if (costs_.order == PipelineOrder::gpipe) return costs_.micro_batches;
    const std::int64_t parts = full_step(layout);
    return std::min(costs_.micro_batches, (index + parts - 1) / parts);
  }

  std::span<const StageOption> options(int first, int last, int layout, int index) {
    const Sends sends = sends_of(first, last, layout);
    const std::vector<VariantTotals>& choices =
        choice_.choices(choice_.sequence(first, last), layout, in_flight_of(layout, index));
    options_.clear();
    for (std::size_t i = 0; i < choices.size(); ++i) {
      StageOption option = option_of(costs_, choices[i], sends);
      option.choice = static_cast<std::uint32_t>(i);
      const bool dominated = std::any_of(options_.begin(), options_.end(),
                                         [&](const StageOption& other) { return dominates(other, option); });
      if (!dominated) options_.push_back(option);
    }
    return options_;
  }

  StageOption best_case(int first, int last, int layout) {
    const VariantTotals& totals = choice_.best_case(choice_.sequence(first, last), layout);
    if (totals.seconds == infinite_seconds) return {infinite_seconds, infinite_seconds, infinite_seconds, 0};
    VariantTotals best = totals;
    best.beside = 0;  // how much of an exchange is not hidden depends on the choice
    return option_of(costs_, best, sends_of(first, last, layout));
  }

  StageOption bound(int first, int last, int layout, int index) {
    const VariantTotals& totals =
        choice_.bound(choice_.sequence(first, last), layout, in_flight_of(layout, index));
    if (totals.seconds == infinite_seconds) return {infinite_seconds, infinite_seconds, infinite_seconds, 0};
    return option_of(costs_, totals, sends_of(first, last, layout));
  }

  std::vector<StageDetail> details(const Pipeline& pipeline) {
    std::vector<StageDetail> details(pipeline.stages.size());
    std::int64_t index = 0;
    for (std::size_t s = pipeline.stages.size(); s-- > 0;) {
      index += full_step(pipeline.stages[s].layout);
      details[s] = detail(pipeline.stages[s], in_flight(pipeline.stages[s].layout, index));
    }
    return details;
  }

  std::vector<Bytes> least_bytes(int first, int layout, int index) const {
    return choice_.least_bytes(first, layout, in_flight_of(layout, index));
  }

 private:
  const ParallelCosts& costs_;
  std::vector<StageLayout> layouts_;
  CrossingBytes crossing_;
  VariantChoice choice_;
  bool index_counts_ = false;
  std::vector<StageOption> options_;  // of the last call

  // As `in_flight`, for the index that searches use.
  std::int64_t in_flight_of(int layout, int index) const {
    return index_counts_ ? in_flight(layout, index) : in_flight(layout, 1);
  }

  Sends sends_of(int first, int last, int layout) const {
    const StageLayout& of = layouts_[static_cast<std::size_t>(layout)];
    const double links = costs_.links == Links::parts ? of.parts : of.devices;
    const auto seconds = [&](double bytes) {
      return bytes > 0 ? 2 * (bytes / (costs_.link.bytes_per_second * links) + costs_.link.latency_seconds)
                       : 0.0;
    };
    const bool split = of.mixed || of.split > 1;
    return {seconds(crossing_.in(first, last, split)), seconds(crossing_.out(first, last, split))};
  }

  StageDetail detail(const PlacedStage& stage, std::int64_t in_flight) {
    StageDetail detail;
    detail.variants = choice_.variants(stage.first, stage.last, stage.layout, in_flight, stage.option.choice);
    double backward = 0;
    for (int layer = stage.first; layer < stage.last; ++layer) {
      const LayerVariant& of =
          costs_.layers[static_cast<std::size_t>(layer)].variants[static_cast<std::size_t>(
              detail.variants[static_cast<std::size_t>(layer - stage.first)])];
      backward += of.backward_seconds;
      detail.bytes = saturated_sum(detail.bytes, of.bytes_with(in_flight));
    }
    const Sends sends = sends_of(stage.first, stage.last, stage.layout);
    const double own_sends =
        costs_.sending == Sending::within ? sends.front + sends.back : (sends.front + sends.back) / 2;
    detail.backward_seconds = backward;
    detail.forward_seconds = std::max(0.0, stage.option.way - own_sends - backward);
    detail.front_send_seconds = sends.front;
    detail.back_send_seconds = sends.back;
    detail.exchange_seconds = stage.option.tail;
    detail.in_flight = in_flight;
    return detail;
  }
};

StageTable::StageTable(const ParallelCosts& costs) {
  check_costs(costs);
  body_ = std::make_unique<Body>(costs);
}
StageTable::~StageTable() = default;
int StageTable::layers() const { return body_->layers(); }
std::span<const StageLayout> StageTable::layouts() const { return body_->layouts(); }
int StageTable::index_step(int layout) const { return body_->index_step(layout); }
std::span<const StageOption> StageTable::options(int first, int last, int layout, int index) {
  return body_->options(first, last, layout, index);
}
StageOption StageTable::best_case(int first, int last, int layout) {
  return body_->best_case(first, last, layout);
}
StageOption StageTable::bound(int first, int last, int layout, int index) {
  return body_->bound(first, last, layout, index);
}
std::vector<StageDetail> StageTable::details(const Pipeline& pipeline) { return body_->details(pipeline); }
std::vector<Bytes> StageTable::least_bytes(int first, int layout, int index) const {
  return body_->least_bytes(first, layout, index);
}
std::uint64_t StageTable::work() const { return body_->work(); }
bool StageTable::exact() const { return body_->exact(); }

SearchQuestion question_of(const ParallelCosts& costs) {
  SearchQuestion question;
  question.devices = costs.devices;
  question.use_all_devices = costs.use_all_devices;
  question.micro_batches = costs.micro_batches;
  question.objective = costs.objective;
  return question;
}

}  // namespace stowage
