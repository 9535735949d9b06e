// This file is compiled once for each instruction set, by including itself. Contraction is off: the device's
// AdamW must give the same bits, and every instruction set must read the records of any other.
#include "kernels/cpu/adamw_simd.h"

// Disabled targets: SSSE3, since SSE4 or plain code serves machines without AVX2; AVX3_DL, which gains
// nothing here; and targets with vectors of a length unknown to the compiler, which cannot be members of
// a struct.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adamw_simd.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "include/stowage/error.h"
#include "kernels/cpu/adamw_step_inl.h"

HWY_BEFORE_NAMESPACE();
namespace stowage::cpu::HWY_NAMESPACE {
namespace {

template <class Operands>
class UpdateBody {
 public:
  explicit UpdateBody(const AdamWConstants<float>& constants) : update_(constants) {}

  HWY_INLINE void operator()(const Operands& of, std::int64_t i, std::int64_t) const {
    const Element old = element(of, i);
    Step step = update_.begin(old, gradient(of, i));
    if (HWY_LIKELY(update_.is_usual(step))) {
      update_.end<true>(step, old.parameter);
    } else {
      update_.end<false>(step, old.parameter);
    }
    set_parameter(of, i, step.next.parameter);
    set_moments(of, i, step.next);
  }

 private:
  Update update_;
};

template <class Operands>
class UndoableBody {
 public:
  UndoableBody(const UndoableConstants& constants, TileResidues& residues)
      : update_(constants), estimate_(constants), residues_(residues) {
    for (std::int64_t& count : residues_.exception_count) count = 0;
  }

  HWY_INLINE void operator()(const Operands& of, std::int64_t i, std::int64_t k) {
    const Element old = element(of, i);
    const Floats g = gradient(of, i);
    Step step = update_.begin(old, g);
    if (HWY_LIKELY(update_.is_usual(step))) {
      end<true>(of, i, k, old, step);
    } else {
      largest_ = hn::Max(largest_, hn::And(bits_of(g), all_bits(0x7fffffffU)));
      end<false>(of, i, k, old, step);
    }
  }

  // Whether all gradients were finite; usual steps have no others.
  bool finite() const { return hn::AllTrue(bits_tag, hn::Lt(largest_, all_bits(0x7f800000U))); }

 private:
  template <bool usual>
  HWY_INLINE void end(const Operands& of, std::int64_t i, std::int64_t k, const Element& old, Step& step) {
    update_.template end<usual>(step, old.parameter);
    set_parameter(of, i, step.next.parameter);
    set_moments(of, i, step.next);
    const Element estimate = estimate_.template before<usual>(step);
    const Integers m = code_or_more(old.first_moment, estimate.first_moment);
    const Integers v = code_or_more(old.second_moment, estimate.second_moment);
    const Integers w = code_or_more(old.parameter, estimate.parameter);
    fetch_soon(residues_, k);
    set_codes(Restored::first_moment, k, m);
    set_codes(Restored::second_moment, k, v);
    set_codes(Restored::parameter, k, w);
    const Integers most = hn::Max(hn::Max(m, v), w);
    if (HWY_LIKELY(hn::AllTrue(bits_tag, hn::Lt(most, all_bits(escape_code))))) return;
    add_exceptions(Restored::first_moment, k, m, old.first_moment);
    add_exceptions(Restored::second_moment, k, v, old.second_moment);
    add_exceptions(Restored::parameter, k, w, old.parameter);
  }

  HWY_INLINE void set_codes(Restored value, std::int64_t k, Integers codes) {
    hn::StoreU(hn::TruncateTo(Byte(), codes), Byte(), residues_.codes[static_cast<int>(value)] + k);
  }
  HWY_INLINE void add_exceptions(Restored value, std::int64_t k, Integers codes, Floats old) {
    const Integers limited = hn::Min(codes, all_bits(escape_code));
    const auto where = hn::Eq(limited, all_bits(escape_code));
    set_codes(value, k, limited);
    std::int64_t& count = residues_.exception_count[static_cast<int>(value)];
    std::uint32_t* end = residues_.exceptions[static_cast<int>(value)] + count;
    hn::StoreU(hn::Compress(bits_of(old), where), bits_tag, end);
    count += static_cast<std::int64_t>(hn::CountTrue(bits_tag, where));
  }

  Update update_;
  Estimate estimate_;
  TileResidues& residues_;
  Integers largest_ = hn::Zero(bits_tag);
};

// Computes old values, vector after vector of a tile.
class WayBack {
 public:
  WayBack(const UndoableConstants& constants, const TileResidues& residues)
      : update_(constants), estimate_(constants), residues_(residues) {
    for (int value = 0; value < restored_values; ++value) next_exception_[value] = residues.exceptions[value];
  }

  HWY_INLINE Element old(const Element& next, Floats gradient, std::int64_t k) {
    fetch_soon(residues_, k);
    const Element estimate = estimate_before(update_.begin_back(next, gradient));
    return {corrected(Restored::parameter, estimate.parameter, k),
            corrected(Restored::first_moment, estimate.first_moment, k),
            corrected(Restored::second_moment, estimate.second_moment, k)};
  }

 private:
  HWY_INLINE Element estimate_before(Step step) const {
    if (HWY_LIKELY(update_.is_usual(step))) {
      update_.end_back<true>(step);
      return estimate_.before<true>(step);
    }
    update_.end_back<false>(step);
    return estimate_.before<false>(step);
  }
  HWY_INLINE Floats corrected(Restored value, Floats estimate, std::int64_t k) {
    const std::uint8_t* bytes = residues_.codes[static_cast<int>(value)] + k;
    const Integers codes = hn::PromoteTo(bits_tag, hn::LoadU(Byte(), bytes));
    const Integers old = old_bits(estimate, codes);
    if (HWY_LIKELY(hn::AllFalse(bits_tag, hn::Eq(codes, all_bits(escape_code))))) return floats_of(old);
    std::uint32_t each[lanes];
    hn::StoreU(old, bits_tag, each);
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      if (bytes[lane] == escape_code) each[lane] = *next_exception_[static_cast<int>(value)]++;
    }
    return floats_of(hn::LoadU(bits_tag, each));
  }

  Update update_;
  Estimate estimate_;
  const TileResidues& residues_;
  const std::uint32_t* next_exception_[restored_values];
};

template <class Operands>
class TakeBackBody {
 public:
  TakeBackBody(const UndoableConstants& constants, const TileResidues& residues)
      : way_back_(constants, residues) {}

  HWY_INLINE void operator()(const Operands& of, std::int64_t i, std::int64_t k) {
    const Element old = way_back_.old(element(of, i), gradient(of, i), k);
    restore_parameter(of, i, old.parameter);
    set_moments(of, i, old);
  }

 private:
  WayBack way_back_;
};

template <class Operands>
class UpdateAgainBody {
 public:
  UpdateAgainBody(const UndoableConstants& wrong, const AdamWConstants<float>& right,
                  const TileResidues& residues)
      : way_back_(wrong, residues), right_(right) {}

  HWY_INLINE void operator()(const Operands& of, std::int64_t i, std::int64_t k) {
    const Floats g = gradient(of, i);
    const Element old = way_back_.old(element(of, i), g, k);
    Step step = right_.begin(old, g);
    if (HWY_LIKELY(right_.is_usual(step))) {
      right_.end<true>(step, old.parameter);
    } else {
      right_.end<false>(step, old.parameter);
    }
    set_parameter(of, i, step.next.parameter);
    set_moments(of, i, step.next);
  }

 private:
  WayBack way_back_;
  Update right_;
};

template <class Operands>
void update_elements(const AdamWConstants<float>& constants, std::int64_t count, const Operands& operands) {
  UpdateBody<Operands> body(constants);
  for_each_vector(count, operands, body);
}

template <class Operands>
bool update_undoably(const UndoableConstants& constants, std::int64_t count, const Operands& operands,
                     TileResidues& residues) {
  UndoableBody<Operands> body(constants, residues);
  for_each_vector(count, operands, body);
  // Shares a byte of the record with the last element's if count is odd.
  if (count > 0 && count % 2 == 1)
    for (auto& codes : residues.codes) codes[count] = code_of_zero;
  return body.finite();
}

template <class Operands>
void take_back(const UndoableConstants& constants, std::int64_t count, const Operands& operands,
               const TileResidues& residues) {
  TakeBackBody<Operands> body(constants, residues);
  for_each_vector(count, operands, body);
}

template <class Operands>
void update_again(const UndoableConstants& wrong, const AdamWConstants<float>& right, std::int64_t count,
                  const Operands& operands, const TileResidues& residues) {
  UpdateAgainBody<Operands> body(wrong, right, residues);
  for_each_vector(count, operands, body);
}

// The functions of one instruction set.
template <class Operands>
const UpdateFunctions<Operands>* functions_for() {
  static const UpdateFunctions<Operands> functions = {hwy::TargetName(HWY_TARGET), update_elements<Operands>,
                                                      update_undoably<Operands>, take_back<Operands>,
                                                      update_again<Operands>};
  return &functions;
}

const UpdateFunctions<AdamWOperands<float>>* f32_functions() { return functions_for<AdamWOperands<float>>(); }
const UpdateFunctions<SplitAdamWOperands>* split_functions() { return functions_for<SplitAdamWOperands>(); }
const UpdateFunctions<HalfAdamWOperands>* half_functions() { return functions_for<HalfAdamWOperands>(); }

}  // namespace
}  // namespace stowage::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stowage::cpu {
namespace {

HWY_EXPORT(f32_functions);
HWY_EXPORT(split_functions);
HWY_EXPORT(half_functions);

const UpdateFunctions<AdamWOperands<float>>& functions(const AdamWOperands<float>&) {
  return *HWY_DYNAMIC_DISPATCH(f32_functions)();
}
const UpdateFunctions<SplitAdamWOperands>& functions(const SplitAdamWOperands&) {
  return *HWY_DYNAMIC_DISPATCH(split_functions)();
}
const UpdateFunctions<HalfAdamWOperands>& functions(const HalfAdamWOperands&) {
  return *HWY_DYNAMIC_DISPATCH(half_functions)();
}

}  // namespace

template <class Operands>
void update_elements(const AdamWConstants<float>& constants, std::int64_t count, const Operands& operands) {
  functions(operands).update_elements(constants, count, operands);
}

template <class Operands>
bool update_undoably(const UndoableConstants& constants, std::int64_t count, const Operands& operands,
                     TileResidues& residues) {
  return functions(operands).update_undoably(constants, count, operands, residues);
}

template <class Operands>
void take_back(const UndoableConstants& constants, std::int64_t count, const Operands& operands,
               const TileResidues& residues) {
  functions(operands).take_back(constants, count, operands, residues);
}

template <class Operands>
void update_again(const UndoableConstants& wrong, const AdamWConstants<float>& right, std::int64_t count,
                  const Operands& operands, const TileResidues& residues) {
  functions(operands).update_again(wrong, right, count, operands, residues);
}

template void update_elements(const AdamWConstants<float>&, std::int64_t, const AdamWOperands<float>&);
template void update_elements(const AdamWConstants<float>&, std::int64_t, const SplitAdamWOperands&);
template void update_elements(const AdamWConstants<float>&, std::int64_t, const HalfAdamWOperands&);
template bool update_undoably(const UndoableConstants&, std::int64_t, const AdamWOperands<float>&,
                              TileResidues&);
template bool update_undoably(const UndoableConstants&, std::int64_t, const SplitAdamWOperands&,
                              TileResidues&);
template bool update_undoably(const UndoableConstants&, std::int64_t, const HalfAdamWOperands&,
                              TileResidues&);
template void take_back(const UndoableConstants&, std::int64_t, const AdamWOperands<float>&,
                        const TileResidues&);
template void take_back(const UndoableConstants&, std::int64_t, const SplitAdamWOperands&,
                        const TileResidues&);
template void take_back(const UndoableConstants&, std::int64_t, const HalfAdamWOperands&,
                        const TileResidues&);
template void update_again(const UndoableConstants&, const AdamWConstants<float>&, std::int64_t,
                           const AdamWOperands<float>&, const TileResidues&);
template void update_again(const UndoableConstants&, const AdamWConstants<float>&, std::int64_t,
                           const SplitAdamWOperands&, const TileResidues&);
template void update_again(const UndoableConstants&, const AdamWConstants<float>&, std::int64_t,
                           const HalfAdamWOperands&, const TileResidues&);

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (std::int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
    names.emplace_back(hwy::TargetName(left & -left));
  }
  return names;
}

std::string instruction_set_in_use() { return functions(AdamWOperands<float>{}).instruction_set; }

void use_instruction_set(const std::string& name) {
  std::int64_t chosen = hwy::SupportedTargets();
  if (!name.empty()) {
    std::int64_t left = chosen & HWY_TARGETS;
    while (left != 0 && hwy::TargetName(left & -left) != name) left &= left - 1;
    if (left == 0) throw InvalidInput("no instruction set '" + name + "' here");
    chosen = left & -left;
  }
  hwy::GetChosenTarget().Update(chosen);
}

}  // namespace stowage::cpu
#endif
