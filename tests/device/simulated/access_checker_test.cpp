#include "src/device/simulated/access_checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/device/simulated/access_history.h"
#include "stowage/error.h"
#include "tests/support/printed_name.h"

namespace stowage::simulated {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class AccessCheckerTest : public testing::TestWithParam<bool> {
 protected:
  void read(LaneId lane, const char* name, RangeId range, Bytes begin, Bytes end) {
    const RangeAccess access{range, begin, end, AccessMode::read};
    checker.launch(lane, names.intern(name), {&access, 1});
  }
  void write(LaneId lane, const char* name, RangeId range, Bytes begin, Bytes end) {
    const RangeAccess access{range, begin, end, AccessMode::write};
    checker.launch(lane, names.intern(name), {&access, 1});
  }
  void copy_in(const char* name, Bytes begin, Bytes end) {
    checker.copy(h2d, names.intern(name), {device, begin, end, AccessMode::write}, {pinned, begin, end});
  }
  void copy_out(const char* name, Bytes begin, Bytes end) {
    checker.copy(d2h, names.intern(name), {pinned, begin, end, AccessMode::write}, {device, begin, end});
  }
  void order(LaneId before, LaneId after) {
    VectorClock event;
    checker.record(before, event);
    checker.wait(after, event);
  }
  template <class Function>
  static std::string violation(Function&& function) {
    try {
      function();
    } catch (const AccessViolation& error) {
      return error.what();
    }
    return "no violation";
  }

  Names names;
  AccessChecker checker{GetParam()};
  LaneId compute = checker.add_lane(LaneRole::compute);
  LaneId h2d = checker.add_lane(LaneRole::h2d);
  LaneId d2h = checker.add_lane(LaneRole::d2h);
  LaneId host = checker.add_lane(LaneRole::host);
  RangeId device = checker.add_range(MemoryKind::device, 1000, 1);
  RangeId pinned = checker.add_range(MemoryKind::pinned, 1000, 2);
};
// Everything here holds with and without `host_orders`; what differs has tests of its own below.
INSTANTIATE_TEST_SUITE_P(HostOrders, AccessCheckerTest, testing::Bool(), stowage::test::printed_name);

TEST_P(AccessCheckerTest, CatchesAReadNotOrderedAfterItsWriter) {
  copy_in("prefetch W1", 100, 200);
  EXPECT_THAT(violation([&] { read(compute, "f1", device, 150, 300); }),
              AllOf(HasSubstr("launch 'f1' on compute lane 0 reads bytes [150, 200) of device allocation 1"),
                    HasSubstr("copy 'prefetch W1' on h2d lane 1, which writes them"),
                    HasSubstr("wait for an event")));
  order(h2d, compute);
  read(compute, "f1", device, 150, 200);
}

TEST_P(AccessCheckerTest, CatchesAWriteNotOrderedAfterAReader) {
  write(compute, "b1", device, 0, 100);
  order(compute, d2h);
  copy_out("offload g1", 0, 100);
  EXPECT_THAT(violation([&] { write(compute, "b0", device, 99, 120); }),
              AllOf(HasSubstr("launch 'b0' on compute lane 0 writes bytes [99, 100)"),
                    HasSubstr("copy 'offload g1' on d2h lane 2, which reads them")));
  order(d2h, compute);
  write(compute, "b0", device, 99, 120);
}

TEST_P(AccessCheckerTest, CatchesAWriteNotOrderedAfterAWriter) {
  write(compute, "f", device, 0, 100);
  EXPECT_THAT(
      violation([&] { copy_in("prefetch", 50, 150); }),
      AllOf(HasSubstr("copy 'prefetch' on h2d lane 1 writes bytes [50, 100)"), HasSubstr("launch 'f'")));
}

TEST_P(AccessCheckerTest, CatchesACopyOfWhatIsNotWrittenYet) {
  write(compute, "b1", device, 0, 100);
  EXPECT_THAT(violation([&] { copy_out("offload", 0, 100); }),
              HasSubstr("copy 'offload' on d2h lane 2 reads bytes"));
}

TEST_P(AccessCheckerTest, CatchesPinnedBytesOverwrittenBeforeTheyAreSent) {
  copy_in("prefetch", 0, 100);
  EXPECT_THAT(
      violation([&] { write(host, "update", pinned, 0, 10); }),
      AllOf(HasSubstr("of pinned allocation 2"), HasSubstr("copy 'prefetch' on h2d lane 1, which reads")));
  order(h2d, host);
  write(host, "update", pinned, 0, 10);
}

TEST_P(AccessCheckerTest, CatchesADiscardBeforeTheLastReader) {
  write(compute, "f", device, 0, 100);
  order(compute, d2h);
  copy_out("offload", 0, 100);
  EXPECT_THAT(violation([&] {
                checker.discard(compute, names.intern("discard"), {device, 0, 100, AccessMode::write});
              }),
              AllOf(HasSubstr("discard 'discard' on compute lane 0 writes"), HasSubstr("copy 'offload'")));
}

TEST_P(AccessCheckerTest, CatchesAUseOfDiscardedBytes) {
  write(compute, "f", device, 0, 100);
  checker.discard(compute, names.intern("discard"), {device, 10, 20, AccessMode::write});
  read(compute, "g", device, 0, 10);
  EXPECT_THAT(violation([&] { read(compute, "g", device, 0, 11); }),
              AllOf(HasSubstr("reads bytes [10, 11)"), HasSubstr("undefined since discard")));
  write(compute, "f", device, 10, 20);
  read(compute, "g", device, 0, 100);
}

TEST_P(AccessCheckerTest, CatchesAReadOfFreshDeviceBytes) {
  EXPECT_THAT(violation([&] { read(compute, "g", device, 0, 1); }),
              HasSubstr("undefined since they were allocated"));
  read(compute, "g", pinned, 0, 1000);  // pinned bytes start defined
}

TEST_P(AccessCheckerTest, CatchesTheHostTouchingDeviceMemory) {
  EXPECT_THAT(violation([&] { write(host, "update", device, 0, 1); }), HasSubstr("the host cannot"));
}

TEST_P(AccessCheckerTest, CopiesCarryDefinednessThereAndBack) {
  write(compute, "f", device, 0, 10);
  write(compute, "f", device, 20, 30);
  order(compute, d2h);
  copy_out("offload", 0, 30);  // the gap [10, 20) travels along
  checker.discard(d2h, names.intern("discard"), {device, 0, 30, AccessMode::write});
  order(d2h, h2d);
  copy_in("prefetch", 0, 30);
  order(h2d, compute);
  read(compute, "g", device, 0, 10);
  read(compute, "g", device, 20, 30);
  EXPECT_THAT(violation([&] { read(compute, "g", device, 9, 11); }),
              AllOf(HasSubstr("reads bytes [10, 11)"), HasSubstr("undefined since copy 'prefetch'")));
}

TEST_P(AccessCheckerTest, AnUpdateInPlaceNeedsItsValue) {
  const RangeAccess both[] = {{device, 0, 100, AccessMode::read}, {device, 0, 100, AccessMode::write}};
  EXPECT_THAT(violation([&] { checker.launch(compute, names.intern("add"), both); }), HasSubstr("undefined"));
  write(compute, "f", device, 0, 100);
  checker.launch(compute, names.intern("add"), both);
  checker.launch(compute, names.intern("add"), both);
}

TEST_P(AccessCheckerTest, TheOrderOfOneLaneNeedsNoEvent) {
  copy_in("a", 0, 100);
  copy_in("b", 50, 150);
  copy_in("c", 0, 150);
}

TEST_P(AccessCheckerTest, TwoReadersNeedNoOrder) {
  write(compute, "f", device, 0, 100);
  order(compute, d2h);
  copy_out("offload", 0, 100);
  read(compute, "g", device, 0, 100);
}

TEST_P(AccessCheckerTest, OrderIsImpliedThroughOtherLanes) {
  copy_in("prefetch", 0, 100);
  order(h2d, d2h);
  order(d2h, host);
  order(host, compute);
  read(compute, "f", device, 0, 100);
}

TEST_P(AccessCheckerTest, AWriteIsOrderedAfterReadersThatOtherReadersImply) {
  write(compute, "f", device, 0, 100);
  order(compute, d2h);
  copy_out("offload", 0, 50);
  order(d2h, compute);
  read(compute, "g", device, 0, 100);
  order(compute, h2d);
  copy_in("prefetch", 0, 100);
}

TEST_P(AccessCheckerTest, EveryReaderCounts) {
  copy_in("prefetch", 0, 100);
  order(h2d, compute);
  order(h2d, d2h);
  read(compute, "f", device, 0, 100);
  copy_out("offload", 0, 100);
  order(d2h, h2d);
  EXPECT_THAT(violation([&] { copy_in("again", 0, 100); }), HasSubstr("launch 'f'"));
  order(compute, h2d);
  copy_in("again", 0, 100);
}

TEST_P(AccessCheckerTest, AWaitCapturesTheMostRecentRecordOnly) {
  VectorClock event;
  copy_in("first", 0, 100);
  checker.record(h2d, event);
  checker.wait(compute, event);  // captures "first"
  copy_in("second", 100, 200);
  checker.record(h2d, event);
  read(compute, "f", device, 0, 100);
  EXPECT_THAT(violation([&] { read(compute, "g", device, 100, 200); }), HasSubstr("copy 'second'"));
  checker.wait(compute, event);
  read(compute, "g", device, 100, 200);
}

TEST_P(AccessCheckerTest, ARecordAgainOnAnotherLaneForgetsTheFirst) {
  VectorClock event;
  copy_in("prefetch", 0, 100);
  checker.record(h2d, event);
  checker.record(d2h, event);
  checker.wait(compute, event);
  EXPECT_THAT(violation([&] { read(compute, "f", device, 0, 100); }), HasSubstr("copy 'prefetch'"));
}

TEST_P(AccessCheckerTest, ARecordBeforeTheWorkDoesNotOrderIt) {
  VectorClock event;
  checker.record(h2d, event);
  copy_in("prefetch", 0, 100);
  checker.wait(compute, event);
  EXPECT_THAT(violation([&] { read(compute, "f", device, 0, 100); }), HasSubstr("copy 'prefetch'"));
}

TEST_P(AccessCheckerTest, WhatWasRefusedIsNotRemembered) {
  copy_in("prefetch", 0, 100);
  const RangeAccess accesses[] = {{device, 200, 300, AccessMode::write}, {device, 0, 100, AccessMode::read}};
  EXPECT_THROW(checker.launch(compute, names.intern("f"), accesses), AccessViolation);
  EXPECT_THAT(violation([&] { read(compute, "g", device, 200, 300); }),
              HasSubstr("since they were allocated"));
  copy_in("other", 200, 300);  // nothing of "f" to wait for
}

TEST_P(AccessCheckerTest, MemoryIsGivenUpOnlyOnceTheHostHasSynchronised) {
  copy_in("prefetch", 0, 100);
  EXPECT_THAT(violation([&] { checker.expect_finished(device, 0, 1000, "release"); }),
              AllOf(HasSubstr("release gives up"), HasSubstr("copy 'prefetch'"), HasSubstr("synchronise")));
  EXPECT_THROW(checker.expect_finished(pinned, 0, 1000, "release"), AccessViolation);
  checker.expect_finished(device, 100, 1000, "unmap");
  VectorClock event;
  checker.record(h2d, event);
  checker.synchronise(event);
  checker.expect_finished(device, 0, 1000, "release");
  checker.expect_finished(pinned, 0, 1000, "release");
}

TEST_P(AccessCheckerTest, AReusedRangeStartsFresh) {
  write(compute, "f", device, 0, 1000);
  checker.remove_range(device);
  const RangeId again = checker.add_range(MemoryKind::device, 500, 3);
  EXPECT_THAT(violation([&] { read(compute, "g", again, 0, 1); }), HasSubstr("since they were allocated"));
  const RangeAccess all{again, 0, 500, AccessMode::write};
  checker.launch(d2h, names.intern("w"), {&all, 1});
}

TEST_P(AccessCheckerTest, ALaneThatTakesTheIdOfAnotherIsNotTakenForIt) {
  const LaneId old = checker.add_lane(LaneRole::h2d);
  checker.copy(old, names.intern("old"), {device, 0, 10, AccessMode::write}, {pinned, 0, 10});
  checker.remove_lane(old);
  const LaneId reused = checker.add_lane(LaneRole::h2d);
  ASSERT_EQ(reused, old);
  checker.copy(reused, names.intern("new"), {device, 10, 20, AccessMode::write}, {pinned, 10, 20});
  VectorClock event;
  checker.record(d2h, event);
  checker.wait(compute, event);
  EXPECT_THAT(violation([&] { read(compute, "f", device, 10, 20); }), HasSubstr("copy 'new'"));
}

class HostOrder : public AccessCheckerTest {};
INSTANTIATE_TEST_SUITE_P(HostOrders, HostOrder, testing::Bool(), stowage::test::printed_name);

TEST_P(HostOrder, SynchronisingOrdersLaterWorkOfEveryLaneIfAsked) {
  copy_in("prefetch", 0, 100);
  VectorClock event;
  checker.record(h2d, event);
  checker.synchronise(event);
  const std::string found = violation([&] { read(compute, "f", device, 0, 100); });
  if (GetParam())
    EXPECT_EQ(found, "no violation");
  else
    EXPECT_THAT(found, HasSubstr("copy 'prefetch'"));
}

TEST_P(HostOrder, SynchronisingDoesNotOrderWhatWasEnqueuedAfterTheRecord) {
  VectorClock event;
  checker.record(h2d, event);
  copy_in("prefetch", 0, 100);
  checker.synchronise(event);
  EXPECT_THAT(violation([&] { read(compute, "f", device, 0, 100); }), HasSubstr("copy 'prefetch'"));
}

}  // namespace
}  // namespace stowage::simulated
