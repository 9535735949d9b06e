#include "src/device/simulated/access_history.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>

namespace stowage::simulated {
namespace {

const std::string name = "work";

class AccessHistoryTest : public testing::Test {
 protected:
  void SetUp() override { history.reset(100, false); }
  Stamp stamp(LaneId lane) { return {&name, clocks[lane].advance(lane), lane, WorkKind::launch}; }
  void read(LaneId lane, Bytes begin, Bytes end) {
    const Stamp by = stamp(lane);
    history.read(begin, end, by, clocks[lane]);
  }
  std::map<LaneId, VectorClock> clocks;
  ReaderPool readers;
  AccessHistory history{readers};
};

TEST_F(AccessHistoryTest, FindsTheUndefinedPartOfARange) {
  history.write(10, 20, stamp(0), true);
  EXPECT_FALSE(history.find_undefined(10, 20));
  const auto below = history.find_undefined(5, 20);
  ASSERT_TRUE(below);
  EXPECT_EQ(below->begin, 5u);
  EXPECT_EQ(below->end, 10u);
  EXPECT_TRUE(history.find_undefined(19, 21));
}

TEST_F(AccessHistoryTest, AWriteNeedsTheWriterAndTheReadersAndAReadTheWriter) {
  history.write(0, 50, stamp(0), true);
  EXPECT_TRUE(history.find_unordered(49, 60, AccessMode::read, clocks[1]));
  EXPECT_FALSE(history.find_unordered(50, 60, AccessMode::write, clocks[1]));
  clocks[1].join(clocks[0]);
  EXPECT_FALSE(history.find_unordered(49, 60, AccessMode::read, clocks[1]));
  read(1, 40, 60);
  EXPECT_FALSE(history.find_unordered(0, 100, AccessMode::read, clocks[0]));
  const auto conflict = history.find_unordered(0, 100, AccessMode::write, clocks[0]);
  ASSERT_TRUE(conflict);
  EXPECT_FALSE(conflict->other_wrote);
  EXPECT_EQ(conflict->other.lane, 1u);
  EXPECT_EQ(conflict->begin, 40u);
  EXPECT_EQ(conflict->end, 50u);  // the first such piece
  EXPECT_FALSE(history.find_unordered(0, 40, AccessMode::write, clocks[0]));
}

TEST_F(AccessHistoryTest, AWriteOverManyPiecesLeavesOne) {
  for (Bytes at = 0; at < 100; at += 10) history.write(at, at + 10, stamp(0), true);
  read(0, 33, 77);
  EXPECT_EQ(history.segments(), 12u);
  history.write(0, 100, stamp(0), true);
  EXPECT_EQ(history.segments(), 1u);
}

TEST_F(AccessHistoryTest, ReadersThatLaterOnesImplyAreForgotten) {
  for (int i = 0; i < 100; ++i) {
    read(0, 0, 100);
    read(1, 0, 100);
  }
  EXPECT_EQ(readers.nodes(), 2u);  // one per lane
  clocks[0].join(clocks[1]);
  read(0, 0, 100);
  const auto conflict = history.find_unordered(0, 100, AccessMode::write, clocks[1]);
  ASSERT_TRUE(conflict);
  EXPECT_EQ(conflict->other.lane, 0u);
}

// Judge: the same facts kept byte by byte.
class BytewiseHistory {
 public:
  explicit BytewiseHistory(std::size_t bytes) : bytes_(bytes) {}
  void read(Bytes begin, Bytes end, const Stamp& stamp) {
    for (Bytes b = begin; b < end; ++b) bytes_[b].readers.insert({stamp.lane, stamp.tick});
  }
  void write(Bytes begin, Bytes end, const Stamp& stamp, bool defined) {
    for (Bytes b = begin; b < end; ++b) bytes_[b] = {{stamp.lane, stamp.tick}, {}, defined};
  }
  bool ordered(Bytes begin, Bytes end, AccessMode mode, const VectorClock& clock) const {
    for (Bytes b = begin; b < end; ++b) {
      if (bytes_[b].writer.second != 0 && !clock.covers(bytes_[b].writer.first, bytes_[b].writer.second))
        return false;
      if (mode == AccessMode::read) continue;
      for (const auto& [lane, tick] : bytes_[b].readers)
        if (!clock.covers(lane, tick)) return false;
    }
    return true;
  }
  bool defined(Bytes begin, Bytes end) const {
    for (Bytes b = begin; b < end; ++b)
      if (!bytes_[b].defined) return false;
    return true;
  }

 private:
  using Who = std::pair<LaneId, std::uint64_t>;
  struct Byte {
    Who writer{0, 0};
    std::set<Who> readers;
    bool defined = false;
  };
  std::vector<Byte> bytes_;
};

TEST_F(AccessHistoryTest, AgreesWithAByteByByteJudge) {
  std::mt19937 random(7);
  BytewiseHistory judge(100);
  constexpr LaneId lanes = 3;
  const auto below = [&](Bytes n) { return static_cast<Bytes>(random() % n); };
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto lane = static_cast<LaneId>(below(lanes));
    if (below(4) == 0) clocks[lane].join(clocks[static_cast<LaneId>(below(lanes))]);
    const Bytes begin = below(99), end = begin + 1 + below(std::min<Bytes>(20, 100 - begin));
    const AccessMode mode = below(2) == 0 ? AccessMode::read : AccessMode::write;
    const bool ordered = judge.ordered(begin, end, mode, clocks[lane]);
    ASSERT_EQ(!history.find_unordered(begin, end, mode, clocks[lane]), ordered) << "operation " << i;
    ASSERT_EQ(!history.find_undefined(begin, end), judge.defined(begin, end)) << "operation " << i;
    if (!ordered) {
      ++refused;
      continue;
    }
    const Stamp by = stamp(lane);
    const bool defined = below(4) != 0;
    if (mode == AccessMode::read) {
      history.read(begin, end, by, clocks[lane]);
      judge.read(begin, end, by);
    } else {
      history.write(begin, end, by, defined);
      judge.write(begin, end, by, defined);
    }
  }
  EXPECT_GT(refused, 2000);
  EXPECT_LT(refused, 18000);
}

TEST_F(AccessHistoryTest, ForgetsPartOfARange) {
  history.write(0, 100, stamp(0), true);
  history.forget(20, 30, false);
  EXPECT_FALSE(history.find_unordered(20, 30, AccessMode::write, clocks[1]));
  EXPECT_TRUE(history.find_unordered(20, 31, AccessMode::write, clocks[1]));
  EXPECT_TRUE(history.find_undefined(29, 40));
}

}  // namespace
}  // namespace stowage::simulated
