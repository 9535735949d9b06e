// StageCosts: what each possible stage costs, in each layout, whoever knows it. The searches of search.h need
// nothing else.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "offload/parallel/layer_choice.h"

namespace stowage {

// The spread of a stage over devices.
struct StageLayout {
  int parts = 1;  // 0 if mixed
  int split = 1;  // 0 if mixed
  int devices = 1;
  bool mixed = false;  // layers of the stage may differ in parts and split
  friend bool operator==(const StageLayout&, const StageLayout&) = default;
};

// One way to compute a stage. A step of stages s with M micro-batches takes
// sum(way) + (M - 1) * max(pace) + max(tail).
struct StageOption {
  double way = 0;   // seconds that a micro-batch spends here, forward and backward, sends included
  double pace = 0;  // seconds from one micro-batch to the next, if no other stage is slower
  double tail =
      0;  // seconds behind the last micro-batch: the exchange of gradients, as far as nothing hides it
  std::uint32_t choice = 0;  // names the option to StageCosts
};

// Returns whether no plan gets worse if `a` takes the place of `b`. A shorter way may have a longer tail,
// since the tail begins that much sooner.
inline bool dominates(const StageOption& a, const StageOption& b) {
  return a.way <= b.way && a.pace <= b.pace && a.way + a.tail <= b.way + b.tail;
}

class StageCosts {
 public:
  virtual ~StageCosts() = default;

  virtual int layers() const = 0;
  virtual std::span<const StageLayout> layouts() const = 0;

  // Returns by how much a stage of this layout raises the index of the stages before it. The index of a stage
  // is the sum over it and all stages behind it; it decides how many micro-batches the stage has in flight. 0
  // for all layouts: memory does not depend on the index.
  virtual int index_step(int layout) const = 0;

  // Returns the options of layers [first, last), none of which dominates another, by rising way. Empty: the
  // stage has no variant for some layer, or does not fit. A higher `index` never gives a better option. The
  // span is valid until the next call.
  virtual std::span<const StageOption> options(int first, int last, int layout, int index) = 0;

  // Returns an option that no option of the stage, at any index, beats in any of its numbers; with infinite
  // numbers if the stage has no option at all. Cheap: needs no search.
  virtual StageOption best_case(int first, int last, int layout) = 0;

  // The same for one index, which may be closer; of `tail` only the sum of `way` and `tail` is a bound.
  virtual StageOption bound(int first, int last, int layout, int index) = 0;

  // Returns the choices that were compared inside stages so far; a search counts them as work of its own.
  virtual std::uint64_t work() const = 0;
  // Returns whether all options so far were the best there are. False once a stage had so many choices that
  // some were left out.
  virtual bool exact() const = 0;
};

}  // namespace stowage
