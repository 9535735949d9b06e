#include "offload/plan/bound.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "offload/plan/bound_program.h"
#include "offload/plan/lane_speeds.h"

namespace stowage {
namespace {

// Of the program's constraints: how the lanes of each phase share one, and what the unit of memory is worth.
struct Multipliers {
  std::array<double, bound_lanes> front{}, back{};
  std::array<double, bound_moments> memory{};
};

// The dual function's value and a subgradient: the cost that it chose.
struct Dual {
  double value = 0;
  BoundCost slope;
};

double price(const BoundCost& cost, const Multipliers& at) {
  double sum = 0;
  for (std::size_t l = 0; l < bound_lanes; ++l)
    sum += at.front[l] * cost.front[l] + at.back[l] * cost.back[l];
  for (std::size_t m = 0; m < bound_moments; ++m) sum += at.memory[m] * cost.memory[m];
  return sum;
}

Dual evaluate(const BoundProgram& program, const Multipliers& at) {
  Dual dual{0, program.fixed};
  for (const BoundDecision& decision : program.decisions) {
    const auto cheapest =
        std::min_element(decision.options.begin(), decision.options.end(),
                         [&](const BoundCost& a, const BoundCost& b) { return price(a, at) < price(b, at); });
    dual.slope.add(*cheapest, decision.count);
  }
  for (std::size_t m = 0; m < bound_moments; ++m) dual.slope.memory[m] -= program.room[m];
  dual.value = price(dual.slope, at);
  return dual;
}

using LaneTimes = std::array<double, bound_lanes>;

// What the multipliers count of each lane's work.
LaneTimes counted(const Multipliers& at, const Dual& dual) {
  LaneTimes times{};
  for (std::size_t l = 0; l < bound_lanes; ++l)
    times[l] = at.front[l] * dual.slope.front[l] + at.back[l] * dual.slope.back[l];
  return times;
}

struct Best {
  double value = 0;
  LaneTimes times{};  // of all that were nearly as good: their choices together are the program's mixture
};

// The multipliers as a point of the unit cube: what compute does not have of each phase's one, and the
// memory's in parts of what they can be at most.
constexpr std::size_t dimensions = 2 * (bound_lanes - 1) + bound_moments;
using Point = std::array<double, dimensions>;

class Ascent {
 public:
  explicit Ascent(const BoundProgram& program) : program_(program) {
    // With no memory in use the program's value is at most the cost of the options that use none; so where
    // the memory's price exceeds that, the dual is below zero.
    double most = price_of_no_memory();
    for (std::size_t m = 0; m < bound_moments; ++m) most_memory_[m] = most / program.room[m];
    center_.fill(0.5);
    for (std::size_t i = 0; i < dimensions; ++i) shape_[i][i] = static_cast<double>(dimensions) / 4;
  }

  Best run() {
    constexpr int most_cuts = 6000;
    Multipliers start;
    start.front[bound_compute] = start.back[bound_compute] = 1;
    take(start, evaluate(program_, start));
    for (int i = 0; i < most_cuts; ++i) {
      Point cut{};
      const bool outside = violated(cut);
      if (!outside) cut = objective();
      const double left = shrink(cut);
      if (left <= 0 || (!outside && left < 1e-5 * best_.value)) break;
    }
    return best_;
  }

 private:
  static constexpr std::size_t others = bound_lanes - 1;  // lanes but compute

  double price_of_no_memory() const {
    double sum = 0;
    for (std::size_t l = 0; l < bound_lanes; ++l) sum += program_.fixed.front[l] + program_.fixed.back[l];
    for (const BoundDecision& decision : program_.decisions) {
      double least = -1;
      for (const BoundCost& option : decision.options) {
        if (*std::max_element(option.memory.begin(), option.memory.end()) > 0) continue;
        double cost = 0;
        for (std::size_t l = 0; l < bound_lanes; ++l) cost += option.front[l] + option.back[l];
        if (least < 0 || cost < least) least = cost;
      }
      sum += decision.count * std::max(0.0, least);
    }
    return sum;
  }

  void take(const Multipliers& at, const Dual& here) {
    constexpr double near = 1e-3;
    if (here.value < best_.value * (1 - near)) return;
    if (here.value > nearly_ * (1 + near)) {
      nearly_ = here.value;
      best_.times = {};
    }
    best_.value = std::max(best_.value, here.value);
    const LaneTimes times = counted(at, here);
    for (std::size_t l = 0; l < bound_lanes; ++l) best_.times[l] += times[l];
  }

  // A constraint that the center breaks, as the normal of what lies beyond it.
  bool violated(Point& cut) const {
    for (std::size_t i = 0; i < dimensions; ++i)
      if (center_[i] < 0) {
        cut[i] = -1;
        return true;
      }
    for (std::size_t phase : {std::size_t{0}, others}) {
      double sum = 0;
      for (std::size_t l = 0; l < others; ++l) sum += center_[phase + l];
      if (sum <= 1) continue;
      for (std::size_t l = 0; l < others; ++l) cut[phase + l] = 1;
      return true;
    }
    return false;
  }

  // Looks at the center; the half without better points.
  Point objective() {
    Multipliers at;
    at.front[bound_compute] = at.back[bound_compute] = 1;
    for (std::size_t l = 0; l < others; ++l) {
      at.front[l + 1] = center_[l];
      at.front[bound_compute] -= center_[l];
      at.back[l + 1] = center_[others + l];
      at.back[bound_compute] -= center_[others + l];
    }
    for (std::size_t m = 0; m < bound_moments; ++m) at.memory[m] = center_[2 * others + m] * most_memory_[m];
    const Dual here = evaluate(program_, at);
    take(at, here);
    Point cut{};
    for (std::size_t l = 0; l < others; ++l) {
      cut[l] = here.slope.front[bound_compute] - here.slope.front[l + 1];
      cut[others + l] = here.slope.back[bound_compute] - here.slope.back[l + 1];
    }
    for (std::size_t m = 0; m < bound_moments; ++m)
      cut[2 * others + m] = -here.slope.memory[m] * most_memory_[m];
    return cut;
  }

  // Takes the smallest ellipsoid around the half that is left. Returns how much the objective may still gain
  // over the center, if the cut was its.
  double shrink(const Point& cut) {
    constexpr double n = dimensions;
    Point along{};
    double square = 0;
    for (std::size_t i = 0; i < dimensions; ++i) {
      for (std::size_t j = 0; j < dimensions; ++j) along[i] += shape_[i][j] * cut[j];
      square += along[i] * cut[i];
    }
    if (!(square > 0)) return 0;
    const double length = std::sqrt(square);
    for (std::size_t i = 0; i < dimensions; ++i) center_[i] -= along[i] / length / (n + 1);
    for (std::size_t i = 0; i < dimensions; ++i)
      for (std::size_t j = 0; j < dimensions; ++j)
        shape_[i][j] = n * n / (n * n - 1) * (shape_[i][j] - 2 / (n + 1) * along[i] * along[j] / square);
    return length;
  }

  const BoundProgram& program_;
  std::array<double, bound_moments> most_memory_{};
  Point center_{};
  std::array<Point, dimensions> shape_{};
  Best best_;
  double nearly_ = 0;  // the value from which on lanes' times are counted, about
};

// The lane whose work the multipliers count most of.
std::string binding_lane(const Best& best) {
  constexpr std::array<const char*, bound_lanes> names{"compute", "h2d", "d2h", "host"};
  const auto most = std::max_element(best.times.begin(), best.times.end());
  return names[static_cast<std::size_t>(most - best.times.begin())];
}

}  // namespace

StepBound lower_bound(const Problem& problem, Bytes device_budget) {
  auto of = [&](BoundLinks links) -> StepBound {
    const BoundProgram program = make_bound_program(problem, device_budget, links);
    const Best best = Ascent(program).run();
    return {best.value * program.seconds, binding_lane(best)};
  };
  StepBound apart = of(BoundLinks::apart);
  if (!LaneSpeeds(*problem.machine).shared()) return apart;
  StepBound shared = of(BoundLinks::shared);
  return shared.seconds > apart.seconds ? shared : apart;
}

}  // namespace stowage
