#include "tests/support/parallel_chains.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace stowage::testing {
namespace {

double uniform(std::mt19937_64& random, double low, double high) {
  return low + (high - low) * static_cast<double>(random() >> 11U) * 0x1p-53;
}
int whole(std::mt19937_64& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<std::uint64_t>(high - low + 1));
}
bool chance(std::mt19937_64& random, double share) { return uniform(random, 0, 1) < share; }

constexpr Bytes mib = Bytes{1} << 20U;

struct Spread {
  int parts = 1, split = 1;
};

std::vector<LayerVariant> random_variants(std::mt19937_64& random, const std::vector<Spread>& spreads,
                                          bool exchanges) {
  const double forward = uniform(random, 0.1, 2), backward = uniform(random, 1, 3) * forward;
  const double weights = uniform(random, 1, 40), activations = uniform(random, 1, 30);
  std::vector<LayerVariant> variants;
  for (const Spread& spread : spreads) {
    for (const bool rebuilt : {false, true}) {
      if (rebuilt && !chance(random, 0.5)) continue;
      LayerVariant variant;
      variant.name = (rebuilt ? "rebuilt " : "kept ") + std::to_string(spread.parts) + "x" +
                     std::to_string(spread.split);
      variant.parts = spread.parts;
      variant.split = spread.split;
      const double slower = uniform(random, 1, 1.3) / variant.devices();
      variant.forward_seconds = forward * slower;
      variant.backward_seconds = (backward + (rebuilt ? forward : 0)) * slower;
      variant.bytes = static_cast<Bytes>(weights / spread.split) * mib;
      variant.bytes_in_flight =
          static_cast<Bytes>(activations / variant.devices() * (rebuilt ? 0.2 : 1) * 1024) * 1024;
      if (spread.parts > 1 && exchanges)
        variant.exchanged_bytes = static_cast<Bytes>(weights / spread.split) * mib;
      if (spread.parts > 1 && !exchanges)
        variant.seconds_with_exchange = variant.seconds() + uniform(random, 0, 1);
      variants.push_back(variant);
    }
  }
  return variants;
}

// Changes of variant that are possible between some layers, as seconds; about a fifth lose none.
void add_changes(std::mt19937_64& random, ParallelCosts& costs) {
  std::map<std::string, Spread> spreads;
  for (const ParallelLayer& layer : costs.layers) {
    for (const LayerVariant& variant : layer.variants) spreads[variant.name] = {variant.parts, variant.split};
  }
  for (const auto& [before, from] : spreads) {
    for (const auto& [behind, to] : spreads) {
      const bool same = from.parts == to.parts && from.split == to.split;
      if (same ? chance(random, 0.8) : from.parts * from.split != to.parts * to.split) continue;
      costs.changes.push_back({before, behind, chance(random, 0.2) ? 0 : uniform(random, 0, 0.2)});
    }
  }
}

}  // namespace

ParallelCosts random_chain(std::mt19937_64& random, const ChainShape& shape) {
  ParallelCosts costs;
  costs.devices = whole(random, shape.least_devices, shape.most_devices);
  costs.use_all_devices = chance(random, 0.2);
  costs.micro_batches = whole(random, 1, shape.most_micro_batches);
  costs.order = chance(random, 0.2) ? PipelineOrder::gpipe : PipelineOrder::one_f_one_b;
  costs.in_flight = chance(random, 0.2) ? InFlight::parts : InFlight::stages;
  costs.sending = chance(random, 0.5) ? Sending::within : Sending::beside;
  costs.links = costs.in_flight == InFlight::parts || chance(random, 0.3) ? Links::parts : Links::devices;
  costs.link = {.bytes_per_second = 1e8, .latency_seconds = chance(random, 0.5) ? 0.01 : 0.0};
  costs.exchange_bytes_per_second = 1e8;
  if (chance(random, 0.34)) costs.memory = static_cast<Bytes>(uniform(random, 20, 160)) * mib;
  std::vector<Spread> spreads;
  for (int parts = 1; parts <= costs.devices; ++parts) {
    for (int split = 1; parts * split <= costs.devices; split *= 2) {
      if (parts * split == 1 || chance(random, 0.5)) spreads.push_back({parts, split});
    }
  }
  const bool exchanges = chance(random, 0.5);
  const int layers = whole(random, shape.least_layers, shape.most_layers);
  for (int layer = 0; layer < layers; ++layer) {
    costs.layers.push_back({"layer " + std::to_string(layer), random_variants(random, spreads, exchanges)});
    // Models have layers that are alike.
    if (layer > 0 && chance(random, 0.4))
      costs.layers.back().variants = costs.layers[costs.layers.size() - 2].variants;
    if (layer > 0) costs.cut_bytes.push_back(static_cast<Bytes>(uniform(random, 0, 20) * 1024) * 1024);
  }
  if (chance(random, 0.3)) {
    const int from = whole(random, 0, layers - 2);
    costs.values.push_back({from, whole(random, from + 1, layers - 1), 8 * mib, 2 * mib, 3 * mib});
  }
  if (costs.in_flight == InFlight::stages && costs.links == Links::devices && chance(random, 0.4))
    add_changes(random, costs);
  return costs;
}

namespace {

// One way to compute a stage.
struct TriedStage {
  double way = 0, pace = 0, tail = 0;
};

class Trying {
 public:
  Trying(const ParallelCosts& costs, bool grids)
      : costs_(costs), grids_(grids), layers_(static_cast<int>(costs.layers.size())) {
    for (const ParallelLayer& layer : costs.layers) {
      for (const LayerVariant& variant : layer.variants) spreads_[{variant.parts, variant.split}] = true;
    }
    for (const VariantChange& change : costs.changes) changes_[{change.from, change.to}] = change.seconds;
  }

  std::optional<BestByTrying> best() {
    if (grids_) {
      for (const auto& [spread, there] : spreads_) {
        only_ = spread;
        extend(layers_, 0, 0, 0, {});
      }
    } else {
      extend(layers_, 0, 0, 0, {});
    }
    return best_;
  }

 private:
  const ParallelCosts& costs_;
  bool grids_;
  int layers_;
  std::map<std::pair<int, int>, bool> spreads_;
  std::map<std::pair<std::string, std::string>, double> changes_;
  std::pair<int, int> only_{0, 0};
  std::optional<BestByTrying> best_;
  std::map<std::tuple<int, int, int, int, int, std::int64_t>, std::vector<TriedStage>> tried_;

  // Layers [end, …) are in stages already, on so many devices, with so many stages and parts.
  void extend(int end, int devices, int stages, int parts, BestByTrying so_far) {
    if (end == 0) {
      if (costs_.use_all_devices && devices != costs_.devices) return;
      so_far.value =
          costs_.objective == ParallelObjective::largest_stage
              ? so_far.pace
              : so_far.way + static_cast<double>(costs_.micro_batches - 1) * so_far.pace + so_far.tail;
      if (!best_ || so_far.value < best_->value) best_ = so_far;
      return;
    }
    for (int first = 0; first < end; ++first) {
      // A stage of layers that all have these parts and this split; of (0, n): of any with n devices.
      std::vector<std::pair<int, int>> kinds;
      for (const auto& [spread, there] : spreads_) {
        if (grids_ ? spread == only_ : true) kinds.push_back(spread);
      }
      if (!grids_ && !costs_.changes.empty()) {
        for (int all = 1; all <= costs_.devices; ++all) kinds.push_back({0, all});
      }
      for (const auto& [of_parts, of_split] : kinds) {
        const int own = of_parts == 0 ? of_split : of_parts * of_split;
        if (devices + own > costs_.devices) continue;
        std::int64_t in_flight = costs_.micro_batches;
        if (costs_.order == PipelineOrder::one_f_one_b) {
          const int waves = costs_.in_flight == InFlight::stages
                                ? stages + 1
                                : (parts + of_parts + of_parts - 1) / of_parts;
          in_flight = std::min<std::int64_t>(in_flight, waves);
        }
        for (const TriedStage& stage : stages_of(first, end, of_parts, of_split, in_flight)) {
          extend(first, devices + own, stages + 1, parts + of_parts,
                 {0, so_far.way + stage.way, std::max(so_far.pace, stage.pace),
                  std::max(so_far.tail, stage.tail)});
        }
      }
    }
  }

  const std::vector<TriedStage>& stages_of(int first, int last, int parts, int split,
                                           std::int64_t in_flight) {
    const auto [place, added] = tried_.try_emplace({first, last, parts, split, 0, in_flight});
    if (added) {
      std::vector<const LayerVariant*> chosen;
      choose(first, last, parts, split, in_flight, chosen, place->second);
    }
    return place->second;
  }

  void choose(int first, int last, int parts, int split, std::int64_t in_flight,
              std::vector<const LayerVariant*>& chosen, std::vector<TriedStage>& found) {
    if (static_cast<int>(chosen.size()) == last - first) {
      const auto stage = stage_of(first, last, parts, split, in_flight, chosen);
      if (!stage) return;
      // A stage that is worse in every number is left out; nothing cleverer.
      for (const TriedStage& other : found) {
        if (other.way <= stage->way && other.pace <= stage->pace && other.tail <= stage->tail) return;
      }
      found.push_back(*stage);
      return;
    }
    for (const LayerVariant& variant :
         costs_.layers[static_cast<std::size_t>(first) + chosen.size()].variants) {
      if (parts == 0 ? variant.devices() != split : variant.parts != parts || variant.split != split)
        continue;
      chosen.push_back(&variant);
      choose(first, last, parts, split, in_flight, chosen, found);
      chosen.pop_back();
    }
  }

  std::optional<TriedStage> stage_of(int first, int last, int parts, int split, std::int64_t in_flight,
                                     const std::vector<const LayerVariant*>& chosen) const {
    double seconds = 0, exchange = 0, beside = 0;
    Bytes bytes = 0;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const LayerVariant& of = *chosen[i];
      seconds += of.forward_seconds + of.backward_seconds;
      if (of.exchanged_bytes > 0)
        exchange += static_cast<double>(of.exchanged_bytes) / costs_.exchange_bytes_per_second;
      beside +=
          of.seconds_with_exchange ? *of.seconds_with_exchange : of.forward_seconds + of.backward_seconds;
      bytes += of.bytes + of.bytes_in_flight * static_cast<Bytes>(in_flight);
      if (i == 0) continue;
      const LayerVariant& before = *chosen[i - 1];
      const auto change = changes_.find({before.name, of.name});
      if (change != changes_.end()) {
        seconds += change->second;
      } else if (before.parts != of.parts || before.split != of.split) {
        return {};
      }
    }
    if (bytes > costs_.memory) return {};
    double in = first > 0 && !costs_.cut_bytes.empty()
                    ? static_cast<double>(costs_.cut_bytes[static_cast<std::size_t>(first) - 1])
                    : 0;
    double out = last < layers_ && !costs_.cut_bytes.empty()
                     ? static_cast<double>(costs_.cut_bytes[static_cast<std::size_t>(last) - 1])
                     : 0;
    const bool is_split = parts == 0 || split > 1;
    for (const CrossingValue& value : costs_.values) {
      const bool made_here = value.from >= first && value.from < last,
                 read_here = value.to >= first && value.to < last;
      if (read_here && !made_here) in += static_cast<double>(value.bytes + (is_split ? value.entering : 0));
      if (made_here && !read_here) out += static_cast<double>(value.bytes + (is_split ? value.leaving : 0));
    }
    const double links = costs_.links == Links::parts ? parts : chosen.front()->parts * chosen.front()->split;
    const auto send = [&](double of) {
      return of > 0 ? 2 * (costs_.link.latency_seconds + of / costs_.link.bytes_per_second / links) : 0;
    };
    const double sends = send(in) + send(out);
    TriedStage stage;
    stage.tail = exchange + std::max(0.0, beside - seconds);
    if (beside > seconds) stage.tail = std::max(exchange, exchange + beside - seconds);
    if (costs_.sending == Sending::within) {
      stage.way = stage.pace = seconds + sends;
    } else {
      stage.way = seconds + sends / 2;
      stage.pace = std::max(seconds, std::max(send(in), send(out)));
    }
    return stage;
  }
};

}  // namespace

std::optional<BestByTrying> best_by_trying(const ParallelCosts& costs, bool grids) {
  return Trying(costs, grids).best();
}

}  // namespace stowage::testing
