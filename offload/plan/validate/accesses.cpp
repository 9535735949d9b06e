#include "offload/plan/validate/passes.h"

#include <fmt/format.h>

#include <algorithm>

namespace stowage::validation {
namespace {

// Bytes [begin, end) of a lifetime or host bucket, touched by an instruction.
struct Touch {
  InstructionId instruction = no_id;  // no_id: the access is at the step's beginning
  Bytes begin = 0;
  Bytes end = 0;
  bool write = false;
};
using Touches = std::vector<Touch>;

bool conflict(const Touch& a, const Touch& b) {
  return (a.write || b.write) && a.begin < b.end && b.begin < a.end;
}

// Adds a touch for each operand but `untouched`: the clip scale, an operand of an update before the gate,
// which does not read it.
void add_operands(const Graph& graph, const Places& places, InstructionId id, OpId op, auto&& list_for,
                  TensorId untouched = no_id) {
  const auto add = [&](TensorId tensor, bool write) {
    Touches* list = list_for(tensor);
    const Bytes begin = places.offset[tensor];
    if (list != nullptr) list->push_back({id, begin, begin + graph.tensor(tensor).bytes(), write});
  };
  for (const TensorId tensor : graph.op(op).reads)
    if (tensor != untouched) add(tensor, false);
  for (const TensorId tensor : graph.op(op).writes) add(tensor, true);
}

// Returns the touches of each lifetime.
std::vector<Touches> arena_touches(const Graph& graph, const Plan& plan, const Places& places) {
  std::vector<Touches> touches(plan.lifetimes.size());
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
    const Instruction& instruction = plan.instructions[id];
    if (runs_on_device(instruction)) {
      add_operands(graph, places, id, instruction.op, [&](TensorId tensor) -> Touches* {
        const LifetimeId use = lifetime_of(plan, places, instruction, tensor);
        return use == no_id ? nullptr : &touches[use];
      });
    } else if (is_transfer(instruction.kind)) {
      const auto [begin, end] = moved_bytes(plan, instruction);
      touches[instruction.lifetime].push_back(
          {id, begin, end, instruction.kind == InstructionKind::prefetch});
    }
  }
  return touches;
}

// Returns the touches of each bucket on the host.
std::vector<Touches> host_touches(const Graph& graph, const Plan& plan, const Places& places) {
  std::vector<Touches> touches(plan.buckets.size());
  for (TensorId tensor = 0; tensor < graph.tensors.size(); ++tensor) {
    if (graph.tensor(tensor).kind != TensorKind::input) continue;
    const Bytes begin = places.offset[tensor];
    touches[places.bucket[tensor]].push_back({no_id, begin, begin + graph.tensor(tensor).bytes(), true});
  }
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
    const Instruction& instruction = plan.instructions[id];
    if (runs_on_host(instruction)) {
      const bool early = instruction.kind == InstructionKind::speculate || id < plan.gate;
      add_operands(
          graph, places, id, instruction.op, [&](TensorId tensor) { return &touches[places.bucket[tensor]]; },
          early ? graph.clip : no_id);
    } else if (is_transfer(instruction.kind)) {
      const BucketId bucket = plan.lifetimes[instruction.lifetime].bucket;
      const auto [begin, end] = moved_bytes(plan, instruction);
      touches[bucket].push_back({id, begin, end, instruction.kind == InstructionKind::offload});
    }
  }
  return touches;
}

class Judge {
 public:
  Judge(const Plan& plan, const Order& order, Report& report) : plan_(plan), order_(order), report_(report) {}

  // Checks that every conflicting pair of touches of one range is ordered, within a step and from
  // step to step.
  void check_shared(const Touches& touches, const std::string& where) const {
    for (std::size_t i = 0; i < touches.size(); ++i) {
      for (std::size_t k = 0; k < touches.size(); ++k) {
        const Touch& a = touches[i];
        const Touch& b = touches[k];
        if (!conflict(a, b)) continue;
        if (comes_first(a, b) && !before(a, 0, b, 0)) complain(a, b, where, "");
        for (std::uint32_t step = 1; step < unrolled_steps; ++step) {
          if (!before(a, 0, b, step)) complain(a, b, where, " of a later step");
        }
      }
    }
  }

  // Checks that all touches of lifetime `from` happen before all touches of `to`, `steps` later. `last`: the
  // touch of `from` that is known to happen after all its other touches, or null.
  void check_handover(LifetimeId from, LifetimeId to, const std::vector<Touches>& touches,
                      std::uint32_t steps, const Touch* last) const {
    const auto after = [&](const Touch& a) {
      return std::all_of(touches[to].begin(), touches[to].end(),
                         [&](const Touch& b) { return before(a, 0, b, steps); });
    };
    if (last != nullptr && after(*last)) return;
    for (const Touch& a : touches[from]) {
      for (const Touch& b : touches[to]) {
        if (before(a, 0, b, steps)) continue;
        const std::string where =
            fmt::format("the arena bytes of {} and {}", report_.lifetime(from), report_.lifetime(to));
        complain(a, b, where, steps > 0 ? " of the next step" : "");
      }
    }
  }

  // Checks that all uses of the lifetime happen before its end, which is one of them. Returns the end if
  // so, else null.
  const Touch* check_end(LifetimeId id, const Touches& touches) const {
    const InstructionId end = plan_.lifetimes[id].end;
    if (touches.empty()) report_.add(fmt::format("{} is never used", report_.lifetime(id)));
    if (end == no_id || touches.empty()) return nullptr;
    const Touch* last = nullptr;
    bool all_before = true;
    for (const Touch& touch : touches) {
      if (touch.instruction == end) last = &touch;
      if (touch.instruction == end || order_.before(order_.node(0, touch.instruction), order_.node(0, end)))
        continue;
      all_before = false;
      report_.add(fmt::format("{} ends with {}, but {} is not ordered before that", report_.lifetime(id),
                              report_.instruction(end), report_.instruction(touch.instruction)));
    }
    if (last == nullptr) {
      report_.add(fmt::format("{} ends with {}, which does not use it", report_.lifetime(id),
                              report_.instruction(end)));
    }
    return all_before ? last : nullptr;
  }

 private:
  std::uint32_t node(const Touch& touch, std::uint32_t step) const {
    return touch.instruction == no_id ? order_.beginning(step) : order_.node(step, touch.instruction);
  }
  bool before(const Touch& a, std::uint32_t a_step, const Touch& b, std::uint32_t b_step) const {
    return order_.before(node(a, a_step), node(b, b_step));
  }
  bool comes_first(const Touch& a, const Touch& b) const { return node(a, 0) < node(b, 0); }
  std::string name(const Touch& touch) const {
    return touch.instruction == no_id ? "the caller's input" : report_.instruction(touch.instruction);
  }
  void complain(const Touch& a, const Touch& b, const std::string& where, const std::string& when) const {
    report_.add(fmt::format("no wait orders {} before {}{}: both touch {}", name(a), name(b), when, where));
  }

  const Plan& plan_;
  const Order& order_;
  Report& report_;
};

// Returns the touches of all buckets in the gradient ring, by byte of the ring.
Touches ring_touches(const Plan& plan, const std::vector<Touches>& of_buckets, Report& report) {
  Touches touches;
  for (BucketId id = 0; id < plan.buckets.size(); ++id) {
    if (!plan.buckets[id].in_ring()) continue;
    const Bytes offset = *plan.buckets[id].place_in(MemoryId::host)->ring_offset;
    for (const Touch& touch : of_buckets[id]) {
      const ByteRange range{touch.begin, touch.end};
      if (!plan.buckets[id].is_whole_in_ring(range))
        report.add(
            fmt::format("{} touches bytes {} to {} of {}, of which the gradient ring has not all at once",
                        report.instruction(touch.instruction), touch.begin, touch.end, report.bucket(id)));
      const Bytes begin = offset + plan.buckets[id].byte_in_ring(touch.begin);
      touches.push_back({touch.instruction, begin, begin + range.bytes(), touch.write});
    }
  }
  return touches;
}

// Names the bucket's host bytes, with the risk of an unordered pair of touches.
std::string host_bytes(const Plan& plan, BucketId id, const Report& report) {
  const char* risk = "";
  if (plan.buckets[id].kind == TensorKind::parameter) risk = " (stale parameter)";
  if (plan.buckets[id].kind == TensorKind::gradient) risk = " (gradient lost)";
  return fmt::format("host bytes of {}{}", report.bucket(id), risk);
}

}  // namespace

std::vector<std::vector<LifetimeId>> arena_neighbours(const Plan& plan) {
  struct Range {
    Bytes begin, end;
    LifetimeId id;
  };
  std::vector<Range> ranges;
  for (LifetimeId id = 0; id < plan.lifetimes.size(); ++id) {
    const Lifetime& lifetime = plan.lifetimes[id];
    ranges.push_back({lifetime.offset, lifetime.offset + plan.buckets[lifetime.bucket].bytes, id});
  }
  std::stable_sort(ranges.begin(), ranges.end(),
                   [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<std::vector<LifetimeId>> neighbours(ranges.size());
  for (auto lower = ranges.begin(); lower != ranges.end(); ++lower) {
    for (auto upper = lower + 1; upper != ranges.end() && upper->begin < lower->end; ++upper) {
      if (lower->begin >= upper->end) continue;  // the interval is empty, or its end is too large a number
      neighbours[lower->id].push_back(upper->id);
      neighbours[upper->id].push_back(lower->id);
    }
  }
  return neighbours;
}

void check_arena(const Graph& graph, const Plan& plan, const Places& places, const Order& order,
                 Report& report) {
  const std::vector<Touches> touches = arena_touches(graph, plan, places);
  const std::vector<std::vector<LifetimeId>> neighbours = arena_neighbours(plan);
  const Judge judge(plan, order, report);
  for (LifetimeId a = 0; a < plan.lifetimes.size(); ++a) {
    const Lifetime& first = plan.lifetimes[a];
    const Touch* last = judge.check_end(a, touches[a]);
    judge.check_shared(touches[a], report.lifetime(a));
    for (const LifetimeId b : neighbours[a]) {
      const Lifetime& second = plan.lifetimes[b];
      if (first.first < second.last && second.first < first.last) {
        if (a > b) continue;
        report.add(fmt::format("{} and {} overlap: common arena bytes and common positions",
                               report.lifetime(a), report.lifetime(b)));
        continue;
      }
      // The lifetime with the earlier interval hands its bytes over within the step, the other one to
      // the next step.
      judge.check_handover(a, b, touches, first.last <= second.first ? 0 : 1, last);
    }
  }
}

void check_host_memory(const Graph& graph, const Plan& plan, const Places& places, const Order& order,
                       Report& report) {
  const std::vector<Touches> touches = host_touches(graph, plan, places);
  const Judge judge(plan, order, report);
  for (BucketId id = 0; id < plan.buckets.size(); ++id) {
    if (plan.buckets[id].on_host() && !plan.buckets[id].in_ring())
      judge.check_shared(touches[id], host_bytes(plan, id, report));
  }
  judge.check_shared(ring_touches(plan, touches, report), "bytes of the gradient ring (gradient lost)");
}

}  // namespace stowage::validation
