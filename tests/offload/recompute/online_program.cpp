#include "tests/offload/recompute/online_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

namespace stowage::testing {
namespace {

constexpr Bytes alignment = 64;
constexpr std::byte poison{0xf5};

// std::mt19937_64 is the same everywhere; the standard's distributions are not.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : engine_(seed) {}
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(engine_() % count); }
  bool chance(std::size_t percent) { return below(100) < percent; }

 private:
  std::mt19937_64 engine_;
};

std::byte* aligned(std::vector<std::byte>& storage) {
  const auto address = reinterpret_cast<std::uintptr_t>(storage.data());
  return storage.data() + (align_up(address, alignment) - address);
}

// Bits that depend on every byte read, on the op and on which of its results it is.
void mix(const OnlineOperands& operands, const std::vector<Bytes>& read_bytes, std::size_t op,
         std::size_t write, std::byte* to, Bytes bytes) {
  std::uint64_t state = op * 0x9e3779b97f4a7c15U + write + 1;
  for (std::size_t i = 0; i < operands.reads.size(); ++i)
    for (Bytes at = 0; at < read_bytes[i]; ++at)
      state = (state ^ static_cast<std::uint64_t>(operands.reads[i][at])) * 6364136223846793005U + 1;
  for (Bytes at = 0; at < bytes; ++at) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    to[at] = static_cast<std::byte>(state >> 56);
  }
}

}  // namespace

Program random_program(std::uint64_t seed) {
  Draw draw(seed);
  Program program;
  std::vector<std::size_t> there, pinned;
  std::size_t made = 0;
  const std::size_t actions = 30 + draw.below(60);
  const auto drop = [](std::vector<std::size_t>& list, std::size_t value) { std::erase(list, value); };
  for (std::size_t i = 0; i < actions; ++i) {
    using enum ProgramAction::Kind;
    const std::size_t dice = draw.below(100);
    const auto any = [&] { return there[draw.below(there.size())]; };
    if (there.empty() || dice < 55) {
      ProgramAction action{run, {}, {}, static_cast<double>(draw.below(20))};
      for (std::size_t reads = there.empty() ? 0 : draw.below(4); reads > 0; --reads)
        action.reads.push_back(
            draw.chance(60) ? there[there.size() - 1 - draw.below(std::min<std::size_t>(4, there.size()))]
                            : any());
      for (std::size_t writes = draw.chance(75) ? 1 : draw.below(4); writes > 0; --writes) {
        action.writes.push_back(1 + draw.below(draw.chance(20) ? 6000 : 500));
        there.push_back(made++);
      }
      program.push_back(std::move(action));
    } else if (dice < 72) {
      const std::size_t tensor = any();
      if (std::find(pinned.begin(), pinned.end(), tensor) != pinned.end()) continue;
      program.push_back({release, {tensor}, {}, 0});
      drop(there, tensor);
    } else if (dice < 88) {
      program.push_back({read, {any()}, {}, 0});
    } else if (dice < 95) {
      if (pinned.size() < 2 && draw.chance(60)) {
        program.push_back({pin, {any()}, {}, 0});
        pinned.push_back(program.back().reads[0]);
      } else if (!pinned.empty()) {
        program.push_back({unpin, {pinned.back()}, {}, 0});
        pinned.pop_back();
      }
    } else if (dice < 97) {
      program.push_back({keep, {any()}, {}, 0});
    }
  }
  return program;
}

Program fragmenting_program(std::uint64_t seed) {
  using enum ProgramAction::Kind;
  Draw draw(seed);
  Program program;
  std::vector<std::size_t> small;
  std::size_t made = 0;
  const auto run_op = [&](std::vector<std::size_t> reads, Bytes bytes, double seconds) {
    program.push_back({run, std::move(reads), {bytes}, seconds});
    return made++;
  };
  const std::size_t source = run_op({}, 64, 1);
  for (int round = 0; round < 6; ++round) {
    // Cheap ones and dear ones in turn.
    for (int i = 0; i < 24; ++i) {
      const double seconds = i % 2 == 0 ? 1 : 20 + static_cast<double>(draw.below(20));
      const Bytes bytes = 256 * (1 + draw.below(3));
      small.push_back(run_op({source}, bytes, seconds));
    }
    const std::size_t large = run_op({source}, 4096 + 256 * draw.below(16), 50);
    program.push_back({read, {large}, {}, 0});
    program.push_back({release, {large}, {}, 0});
    for (int i = 0; i < 6; ++i) program.push_back({read, {small[draw.below(small.size())]}, {}, 0});
  }
  return program;
}

ProgramJudge::ProgramJudge(Bytes capacity, Eviction eviction)
    : storage_(capacity + 2 * alignment, poison), memory_(aligned(storage_)), capacity_(capacity) {
  OnlineOptions options;
  options.alignment = alignment;
  options.eviction = eviction;
  options.dropped = [this](std::byte* data, Bytes bytes) { dropped(data, bytes); };
  runtime_.emplace(memory_, capacity, options);
}

bool ProgramJudge::run(const Program& program) {
  bool enough = true;
  try {
    for (const ProgramAction& action : program) act(action);
  } catch (const OutOfMemory& error) {
    enough = false;
    EXPECT_GT(error.requested_bytes(), 0U);
    EXPECT_LE(error.free_bytes(), capacity_);
  }
  statistics_ = runtime_->statistics();
  EXPECT_LE(statistics_.highest_byte, capacity_);
  EXPECT_LE(statistics_.peak_live_bytes, capacity_);
  EXPECT_TRUE(std::all_of(memory_ + capacity_, storage_.data() + storage_.size(),
                          [](std::byte byte) { return byte == poison; }));
  clear();
  return enough;
}

void ProgramJudge::clear() {
  for (Made& made : made_) {
    made.pins.clear();
    if (!made.released) runtime_->release(made.id);
  }
  EXPECT_TRUE(owned_.empty());
  EXPECT_EQ(runtime_->statistics().live_bytes, 0U);
  EXPECT_EQ(runtime_->remembered(), 0U);
}

void ProgramJudge::act(const ProgramAction& action) {
  using enum ProgramAction::Kind;
  if (action.kind == ProgramAction::Kind::run) return run_op(action);
  Made& made = made_[action.reads[0]];
  if (action.kind == release) {
    made.released = true;
    runtime_->release(made.id);
  } else if (action.kind == read || action.kind == pin) {
    OnlineRecompute::Pin held = runtime_->pin(made.id);
    expect_value(action.reads[0], held.data());
    seen_.insert(seen_.end(), held.data(), held.data() + made.bytes);
    if (action.kind == pin) made.pins.push_back(std::move(held));
  } else if (action.kind == unpin) {
    expect_value(action.reads[0], made.pins.back().data());
    made.pins.pop_back();
  } else {
    runtime_->keep(made.id);
    EXPECT_TRUE(runtime_->is_live(made.id));
  }
}

void ProgramJudge::run_op(const ProgramAction& action) {
  OnlineOp op{
      .name = "op " + std::to_string(ops_), .work = {}, .reads = {}, .writes = {}, .seconds = action.seconds};
  for (std::size_t read : action.reads) op.reads.push_back(made_[read].id);
  const std::size_t first = made_.size();
  for (Bytes bytes : action.writes) {
    Made made;
    made.bytes = bytes;
    made.id = runtime_->declare("tensor " + std::to_string(made_.size()), bytes);
    op.writes.push_back(made.id);
    made_.push_back(std::move(made));
  }
  op.work = [this, number = ops_++, reads = action.reads, first, writes = action.writes.size()](
                const OnlineOperands& operands) { work(number, reads, first, writes, operands); };
  runtime_->run(std::move(op));
}

void ProgramJudge::work(std::size_t op, const std::vector<std::size_t>& reads, std::size_t first_write,
                        std::size_t writes, const OnlineOperands& operands) {
  ASSERT_EQ(operands.reads.size(), reads.size());
  ASSERT_EQ(operands.writes.size(), writes);
  std::vector<Bytes> read_bytes;
  for (std::size_t i = 0; i < reads.size(); ++i) {
    expect_value(reads[i], operands.reads[i]);
    read_bytes.push_back(made_[reads[i]].bytes);
  }
  for (std::size_t i = 0; i < writes; ++i) {
    Made& made = made_[first_write + i];
    take(operands.writes[i], align_up(made.bytes, alignment));
    mix(operands, read_bytes, op, i, operands.writes[i], made.bytes);
    if (made.value.empty()) made.value.assign(operands.writes[i], operands.writes[i] + made.bytes);
    expect_value(first_write + i, operands.writes[i]);
  }
}

void ProgramJudge::expect_value(std::size_t tensor, const std::byte* data) {
  const Made& made = made_[tensor];
  EXPECT_EQ(std::memcmp(data, made.value.data(), made.bytes), 0) << "tensor " << tensor;
}

void ProgramJudge::take(const std::byte* data, Bytes bytes) {
  ASSERT_GE(data, memory_);
  const auto begin = static_cast<Bytes>(data - memory_);
  ASSERT_LE(begin + bytes, capacity_);
  EXPECT_EQ(begin % alignment, 0U);
  const auto after = owned_.lower_bound(begin + bytes);
  EXPECT_TRUE(after == owned_.begin() || std::prev(after)->second <= begin) << "overlap at " << begin;
  owned_[begin] = begin + bytes;
}

// Also of what was taken for an op that then did not run: nobody's bytes.
void ProgramJudge::dropped(std::byte* data, Bytes bytes) {
  const auto begin = static_cast<Bytes>(data - memory_);
  const auto after = owned_.lower_bound(begin + bytes);
  if (after != owned_.begin() && std::prev(after)->second > begin) {
    EXPECT_EQ(std::prev(after)->first, begin);
    EXPECT_EQ(std::prev(after)->second, begin + bytes);
    owned_.erase(std::prev(after));
  }
  std::fill_n(data, bytes, poison);
}

}  // namespace stowage::testing
