// The least memory in which a pipeline fits: the dynamic program of the searches, with bytes for values.
#include <algorithm>

#include "offload/parallel/label_search.h"
#include "offload/parallel/stage_table.h"

namespace stowage {
namespace {

// The stages from a layer on, on so many units of devices and with a given index.
struct LeastCell {
  Bytes bytes = unlimited;  // of the stage that needs most
  LeastMemory stage;
};

std::optional<LeastMemory> least_of(StageTable& table, const SearchQuestion& question) {
  const SearchSpace space(table, question, false);
  const int layers = table.layers();
  const std::size_t width = static_cast<std::size_t>(space.most_index) + 1;
  const std::size_t row = static_cast<std::size_t>(space.units + 1) * width;
  std::vector<LeastCell> cells(static_cast<std::size_t>(layers + 1) * row);
  const auto cell = [&](int layer, int units, int index) -> LeastCell& {
    return cells[static_cast<std::size_t>(layer) * row + static_cast<std::size_t>(units) * width +
                 static_cast<std::size_t>(index)];
  };
  cell(layers, 0, 0).bytes = 0;
  for (int first = layers - 1; first >= 0; --first) {
    for (const int layout : space.layouts) {
      const int step = table.index_step(layout), taken = space.units_of(layout);
      for (int behind = 0; behind + step <= space.most_index; ++behind) {
        const std::vector<Bytes> least = table.least_bytes(first, layout, behind + step);
        for (std::size_t length = 1; length <= least.size(); ++length) {
          const int last = first + static_cast<int>(length);
          for (int units = 0; units + taken <= space.units; ++units) {
            const LeastCell& next = cell(last, units, behind);
            const Bytes own = least[length - 1];
            LeastCell& here = cell(first, units + taken, behind + step);
            if (std::max(own, next.bytes) >= here.bytes) continue;
            here.bytes = std::max(own, next.bytes);
            here.stage = next.stage;
            if (own >= next.bytes)
              here.stage = {own, first, last, table.layouts()[static_cast<std::size_t>(layout)]};
          }
        }
      }
    }
  }
  const LeastCell* best = nullptr;
  for (int units = question.use_all_devices ? space.units : 0; units <= space.units; ++units) {
    for (int index = 0; index <= space.most_index; ++index) {
      const LeastCell& each = cell(0, units, index);
      if (each.bytes != unlimited && (best == nullptr || each.bytes < best->bytes)) best = &each;
    }
  }
  return best == nullptr ? std::nullopt : std::optional(best->stage);
}

}  // namespace

std::optional<LeastMemory> least_memory(const ParallelCosts& costs, bool grids) {
  StageTable table(costs);
  SearchQuestion question = question_of(costs);
  if (!grids) return least_of(table, question);
  std::optional<LeastMemory> least;
  for (std::size_t layout = 0; layout < table.layouts().size(); ++layout) {
    if (table.layouts()[layout].mixed) continue;
    question.layouts = {static_cast<int>(layout)};
    const std::optional<LeastMemory> one = least_of(table, question);
    if (one && (!least || one->bytes < least->bytes)) least = one;
  }
  return least;
}

}  // namespace stowage
