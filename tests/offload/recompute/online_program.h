// Programs for an OnlineRecompute, and a judge that runs them: it knows what every tensor must hold, who owns
// which bytes, and poisons what is given up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "stowage/online_recompute.h"

namespace stowage::testing {

struct ProgramAction {
  enum class Kind : std::uint8_t { run, release, read, pin, unpin, keep };
  Kind kind = Kind::run;
  std::vector<std::size_t>
      reads;                  // numbers of tensors, in the order of their making; the only one of the others
  std::vector<Bytes> writes;  // sizes of new tensors
  double seconds = 0;
};
using Program = std::vector<ProgramAction>;

// Random reads of old and new tensors, sizes over two orders of magnitude, pins, releases and, at times, a
// keep.
Program random_program(std::uint64_t seed);

// Small tensors of very different worth side by side, and large ones that need the place of many.
Program fragmenting_program(std::uint64_t seed);

class ProgramJudge {
 public:
  ProgramJudge(Bytes capacity, Eviction eviction = Eviction::window);

  // False when the memory ran out. Then, or at the end, everything is released, and nothing may be left.
  bool run(const Program& program);
  // Of the run, before the release of what was left.
  const OnlineStatistics& statistics() const { return statistics_; }
  // What the program saw with its reads and pins.
  const std::vector<std::byte>& seen() const { return seen_; }

 private:
  struct Made {
    OnlineTensor id{};
    Bytes bytes = 0;
    std::vector<std::byte> value;  // what it must hold; of the first run
    bool released = false;
    std::vector<OnlineRecompute::Pin> pins;
  };
  void act(const ProgramAction& action);
  void run_op(const ProgramAction& action);
  void work(std::size_t op, const std::vector<std::size_t>& reads, std::size_t first_write,
            std::size_t writes, const OnlineOperands& operands);
  void expect_value(std::size_t tensor, const std::byte* data);
  void take(const std::byte* data, Bytes bytes);
  void dropped(std::byte* data, Bytes bytes);
  void clear();

  std::vector<std::byte> storage_;
  std::byte* memory_;
  Bytes capacity_;
  OnlineStatistics statistics_;
  std::vector<std::byte> seen_;
  std::map<Bytes, Bytes> owned_;  // end by begin
  std::vector<Made> made_;
  std::size_t ops_ = 0;
  std::optional<OnlineRecompute> runtime_;
};

}  // namespace stowage::testing
