#include <algorithm>
#include <cmath>
#include <memory>
#include <random>

#include "bench/host_optimizer/arrays.h"
#include "bench/host_optimizer/measurement.h"
#include "bench/host_optimizer/streamed.h"
#include "kernels/cpu/adamw_simd.h"
#include "kernels/cpu/speculative_adamw.h"
#include "kernels/cpu/undo_record.h"

namespace stowage::bench {
namespace {

using namespace stowage::cpu;

constexpr AdamWSettings settings{0.9, 0.95, 1e-8, 0.1, 1e-4, 20};
constexpr std::int64_t period = 1 << 20;  // elements after which values repeat

// A parameter's state after 20 steps, and the next gradient. The gradients' sizes differ from
// parameter to parameter.
struct Values {
  std::vector<float> parameter, gradient, first_moment, second_moment;
  std::vector<Bfloat16> upper, bf16_gradient;
  std::vector<std::int16_t> low;

  Values() : parameter(period), gradient(period), first_moment(period), second_moment(period) {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < period; ++i) {
      parameter[i] = 0.02F * normal(generator);
      const float size = 1e-4F * std::exp(1.5F * normal(generator));
      for (int step = 0; step < 20; ++step) {
        const float g = size * normal(generator);
        first_moment[i] = 0.9F * first_moment[i] + 0.1F * g;
        second_moment[i] = 0.95F * second_moment[i] + 0.05F * g * g;
      }
      bf16_gradient.push_back(Bfloat16(size * normal(generator)));
      gradient[i] = static_cast<float>(bf16_gradient.back());
      upper.push_back(split(parameter[i]).weight);
      low.push_back(split(parameter[i]).low);
    }
  }
};

// Operands of f32 and of split-weight updates. Moments and record serve both.
struct Memory {
  explicit Memory(std::int64_t elements)
      : count(elements),
        gradient(count),
        first_moment(count),
        second_moment(count),
        parameter(count),
        upper(count),
        bf16_gradient(count),
        low(count),
        record(undo_record_bytes(count)),
        beside(3 * count) {
    fill(count, values.gradient, gradient.data());
    fill(count, values.bf16_gradient, bf16_gradient.data());
  }

  void reset() {
    fill(count, values.parameter, parameter.data());
    fill(count, values.upper, upper.data());
    fill(count, values.low, low.data());
    fill(count, values.first_moment, first_moment.data());
    fill(count, values.second_moment, second_moment.data());
  }
  template <class Operands>
  Operands operands() const;
  // Returns the operands with results that go to `beside`.
  template <class Operands>
  Operands elsewhere() const;

  Values values;
  std::int64_t count;
  Array<float> gradient, first_moment, second_moment, parameter;
  Array<Bfloat16> upper, bf16_gradient;
  Array<std::int16_t> low;
  Array<std::byte> record;
  Array<float> beside;  // 12 bytes for each parameter
};

template <>
AdamWOperands<float> Memory::operands() const {
  return {parameter.data(), gradient.data(),     first_moment.data(), second_moment.data(),
          parameter.data(), first_moment.data(), second_moment.data()};
}
template <>
AdamWOperands<float> Memory::elsewhere() const {
  AdamWOperands<float> of = operands<AdamWOperands<float>>();
  of.new_parameter = beside.data();
  of.new_first_moment = of.new_parameter + count;
  of.new_second_moment = of.new_first_moment + count;
  return of;
}
template <>
SplitAdamWOperands Memory::operands() const {
  return {upper.data(), bf16_gradient.data(), low.data(),          first_moment.data(), second_moment.data(),
          upper.data(), low.data(),           first_moment.data(), second_moment.data()};
}
template <>
SplitAdamWOperands Memory::elsewhere() const {
  SplitAdamWOperands of = operands<SplitAdamWOperands>();
  of.new_first_moment = beside.data();
  of.new_second_moment = of.new_first_moment + count;
  of.new_parameter = reinterpret_cast<Bfloat16*>(of.new_second_moment + count);
  of.new_low = reinterpret_cast<std::int16_t*>(of.new_parameter + count);
  return of;
}

// Copies the values that an update writes, for `count` elements: from where `from` reads them to where `to`
// writes them.
template <class Copy>
void copy_state(std::int64_t count, const AdamWOperands<float>& from, const AdamWOperands<float>& to,
                Copy copy) {
  const auto bytes = static_cast<std::size_t>(count) * sizeof(float);
  copy(from.parameter, bytes, to.new_parameter);
  copy(from.first_moment, bytes, to.new_first_moment);
  copy(from.second_moment, bytes, to.new_second_moment);
}
template <class Copy>
void copy_state(std::int64_t count, const SplitAdamWOperands& from, const SplitAdamWOperands& to, Copy copy) {
  const auto bytes = static_cast<std::size_t>(count) * sizeof(float);
  copy(from.parameter, bytes / 2, to.new_parameter);
  copy(from.low, bytes / 2, to.new_low);
  copy(from.first_moment, bytes, to.new_first_moment);
  copy(from.second_moment, bytes, to.new_second_moment);
}

void copy_through_cache(const void* from, std::size_t bytes, void* to) { std::memcpy(to, from, bytes); }

template <class Body>
void for_each_tile(std::int64_t count, const Body& body) {
  parallel_for(count, chunk, [&](std::int64_t begin, std::int64_t end) {
    for (; begin < end; begin += undo_tile) body(begin, std::min(undo_tile, end - begin));
    end_of_stream();
  });
}

// Tile by tile, saves the old values to `beside`, then updates in place.
template <class Operands, class Copy>
void update_with_copy(const Memory& memory, Copy copy) {
  const AdamWConstants<float> constants(settings, 1);
  const Operands of = memory.operands<Operands>(), shadow = memory.elsewhere<Operands>();
  for_each_tile(memory.count, [&](std::int64_t begin, std::int64_t size) {
    copy_state(size, from_element(begin, of), from_element(begin, shadow), copy);
    update_elements(constants, size, from_element(begin, of));
  });
}

// Buffers for the results of one tile.
template <class Operands>
struct TileResult;
template <>
struct TileResult<AdamWOperands<float>> {
  alignas(64) float parameter[undo_tile], first_moment[undo_tile], second_moment[undo_tile];
  AdamWOperands<float> after(AdamWOperands<float> of) {
    of.new_parameter = parameter;
    of.new_first_moment = first_moment;
    of.new_second_moment = second_moment;
    return of;
  }
  AdamWOperands<float> source() {
    return {parameter, nullptr, first_moment, second_moment, nullptr, nullptr, nullptr};
  }
};
template <>
struct TileResult<SplitAdamWOperands> {
  alignas(64) Bfloat16 parameter[undo_tile];
  alignas(64) std::int16_t low[undo_tile];
  alignas(64) float first_moment[undo_tile], second_moment[undo_tile];
  SplitAdamWOperands after(SplitAdamWOperands of) {
    of.new_parameter = parameter;
    of.new_low = low;
    of.new_first_moment = first_moment;
    of.new_second_moment = second_moment;
    return of;
  }
  SplitAdamWOperands source() {
    return {parameter, nullptr, low, first_moment, second_moment, nullptr, nullptr, nullptr, nullptr};
  }
};

// Leaves the old values where they are and streams the new ones to `beside`.
template <class Operands>
void update_elsewhere_streamed(const Memory& memory) {
  const AdamWConstants<float> constants(settings, 1);
  const Operands of = memory.elsewhere<Operands>();
  for_each_tile(memory.count, [&](std::int64_t begin, std::int64_t size) {
    TileResult<Operands> result;
    update_elements(constants, size, result.after(from_element(begin, of)));
    copy_state(size, result.source(), from_element(begin, of), stream);
  });
}

// Returns the record's bytes for each element: header, planes and exceptions.
double record_bytes(const Memory& memory) {
  std::int64_t bytes = 0;
  TileResidues residues;
  const std::byte* tile = memory.record.data();
  for (std::int64_t begin = 0; begin < memory.count; begin += undo_tile, tile += undo_tile_bytes(undo_tile)) {
    const std::int64_t size = std::min(undo_tile, memory.count - begin);
    bytes += 64;
    if (!was_updated(tile)) continue;
    read_residues(size, tile, residues);
    bytes += restored_values * ((size + 1) / 2);
    for (std::int64_t listed : residues.exception_count) bytes += 4 * listed;
  }
  return static_cast<double>(bytes) / static_cast<double>(memory.count);
}

template <class Operands>
class Updates {
 public:
  Updates(std::shared_ptr<Memory> memory, std::string type, double read, double written,
          std::vector<Measurement>& to)
      : memory_(std::move(memory)), type_(std::move(type)), read_(read), written_(written), to_(to) {}

  void add_all() {
    const auto reset = [memory = memory_] { memory->reset(); };
    const auto speculate = [memory = memory_] {
      adamw_speculate(settings, 1, memory->count, memory->template operands<Operands>(),
                      memory->record.data());
    };
    const auto reset_and_speculate = [=] {
      reset();
      speculate();
    };
    reset_and_speculate();
    const double record = record_bytes(*memory_), plain = read_ + written_;
    const auto update = [memory = memory_](const Operands& of) { adamw(settings, 1, memory->count, of); };
    const std::vector<std::string> sets = instruction_sets();
    for (const std::string& set : sets) {
      add("plain", set, plain, reset,
          [=, memory = memory_] { update(memory->template operands<Operands>()); });
      add("speculated", set, plain + 2 * record, reset, speculate);
    }
    const std::string& best = sets.front();
    add("finished with another scale", best, plain + record, reset_and_speculate, [memory = memory_] {
      adamw_finish(settings, 1, 0.5, memory->count, memory->template operands<Operands>(),
                   memory->record.data());
    });
    add("finished with the same scale", best, 128.0 / undo_tile, reset_and_speculate, [memory = memory_] {
      adamw_finish(settings, 1, 1, memory->count, memory->template operands<Operands>(),
                   memory->record.data());
    });
    add("taken back", best, plain + record, reset_and_speculate, [memory = memory_] {
      adamw_undo(settings, 1, memory->count, memory->template operands<Operands>(), memory->record.data());
    });
    add("old values saved", best, plain + 2 * written_, reset,
        [memory = memory_] { update_with_copy<Operands>(*memory, copy_through_cache); });
    add("written elsewhere", best, plain + written_, reset,
        [=, memory = memory_] { update(memory->template elsewhere<Operands>()); });
    if (!can_stream) return;
    add("old values saved, streamed", best, plain + written_, reset,
        [memory = memory_] { update_with_copy<Operands>(*memory, stream); });
    add("written elsewhere, streamed", best, plain, reset,
        [memory = memory_] { update_elsewhere_streamed<Operands>(*memory); });
  }

 private:
  void add(const std::string& name, const std::string& set, double bytes,
           const std::function<void()>& prepare, const std::function<void()>& run) {
    const bool best = set == instruction_sets().front();
    for (int threads : thread_counts()) {
      if (!best && threads != thread_counts().back()) continue;  // other sets with all cores only
      to_.push_back({name, type_, set, threads, bytes, static_cast<double>(memory_->count), prepare, run});
    }
  }

  std::shared_ptr<Memory> memory_;
  std::string type_;
  double read_, written_;  // bytes of an element's operands
  std::vector<Measurement>& to_;
};

}  // namespace

void add_updates(std::int64_t count, std::vector<Measurement>& to) {
  const auto memory = std::make_shared<Memory>(count);
  Updates<AdamWOperands<float>>(memory, "f32", 16, 12, to).add_all();
  Updates<SplitAdamWOperands>(memory, "bf16 split", 14, 12, to).add_all();
}

}  // namespace stowage::bench
