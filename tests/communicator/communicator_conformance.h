// What every Communicator must do: one suite, instantiated for each implementation and number of ranks with
//   INSTANTIATE_TEST_SUITE_P(Name, CommunicatorConformance, testing::Values(CommunicatorGroup{…}),
//   group_name);
// A body is what one rank does. Failures are asked of `check`, since a call may throw or its work may fail.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tests/communicator/communicator_conformance_fixture.h"

namespace stowage {

constexpr std::array<Bytes, 5> test_sizes{1, 3, 64, 1000, 4099};
constexpr std::array<Bytes, 3> test_offsets{0, 1, 13};

TEST_P(CommunicatorConformance, AllGatherMakesABufferWholeInPlace) {
  run([](TestRank& r) {
    for (const Bytes share : test_sizes)
      for (const Bytes offset : test_offsets) {
        const Bytes whole = times(r.size, share);
        const DeviceMemory memory(r.device, MemoryKind::device, offset + whole + 16);
        r.put(memory.data(), std::vector<std::byte>(memory.bytes(), std::byte{0xee}));
        std::byte* const buffer = memory.data() + offset;
        r.put(buffer + times(r.rank, share), r.patterns(r.rank, 0, share, 1));
        r.communicator.all_gather(r.lane.id(), buffer, share);
        r.synchronise();
        std::vector<std::byte> expected(memory.bytes(), std::byte{0xee});
        for (int q = 0; q < r.size; ++q)
          std::ranges::copy(r.patterns(q, 0, share, 1),
                            expected.begin() + static_cast<std::ptrdiff_t>(offset + times(q, share)));
        ASSERT_EQ(r.get(memory.data(), memory.bytes()), expected) << share << " bytes at " << offset;
      }
  });
}

// Shares from elsewhere; of 1,000 bytes, by four ranks, 400, 400, 200 and none.
TEST_P(CommunicatorConformance, TheLastSharesMayBeCutShort) {
  run([](TestRank& r) {
    constexpr Bytes whole = 1000;
    const Bytes share = whole * 8 / (5 * static_cast<Bytes>(r.size)) + (r.size == 1 ? 7 : 0);
    const auto count = [&](int rank) {
      return std::min(share, whole - std::min<Bytes>(whole, times(rank, share)));
    };
    const DeviceMemory own(r.device, MemoryKind::device, share);
    const DeviceMemory all(r.device, MemoryKind::device, whole);
    if (count(r.rank) > 0) r.put(own.data(), r.patterns(r.rank, 0, count(r.rank), 3));
    r.communicator.all_gather(r.lane.id(), own.data(), all.data(), share, whole);
    const DeviceMemory shares(r.device, MemoryKind::device, times(r.size, share));
    r.put(shares.data(), std::vector<std::byte>(shares.bytes(), std::byte{0xee}));
    r.communicator.exchange(r.lane.id(), all.data(), shares.data(), share, whole);
    r.synchronise();
    std::vector<std::byte> expected, received;
    for (int q = 0; q < r.size; ++q) {
      std::ranges::copy(r.patterns(q, 0, count(q), 3), std::back_inserter(expected));
      std::ranges::copy(r.patterns(r.rank, 0, count(r.rank), 3), std::back_inserter(received));
      received.resize(times(q + 1, share), std::byte{0xee});
    }
    EXPECT_EQ(r.get(all.data(), whole), expected);
    EXPECT_EQ(r.get(shares.data(), shares.bytes()), received);
  });
}

TEST_P(CommunicatorConformance, ExchangeBringsEachRankItsPieces) {
  run([](TestRank& r) {
    for (const Bytes piece : test_sizes)
      for (const Bytes offset : test_offsets) {
        const Bytes whole = times(r.size, piece);
        const DeviceMemory from(r.device, MemoryKind::device, offset + whole);
        const DeviceMemory to(r.device, MemoryKind::device, 2 * offset + whole + 16);
        r.put(from.data() + offset, r.patterns(r.rank, 0, whole, 2));
        r.put(to.data(), std::vector<std::byte>(to.bytes(), std::byte{0xee}));
        r.communicator.exchange(r.lane.id(), from.data() + offset, to.data() + 2 * offset, piece);
        r.synchronise();
        std::vector<std::byte> expected(to.bytes(), std::byte{0xee});
        for (int q = 0; q < r.size; ++q)
          std::ranges::copy(r.patterns(q, times(r.rank, piece), piece, 2),
                            expected.begin() + static_cast<std::ptrdiff_t>(2 * offset + times(q, piece)));
        ASSERT_EQ(r.get(to.data(), to.bytes()), expected) << piece << " bytes at " << offset;
        ASSERT_EQ(r.get(from.data() + offset, whole), r.patterns(r.rank, 0, whole, 2));
      }
  });
}

TEST_P(CommunicatorConformance, BroadcastBringsAllRanksTheRootsBytes) {
  run([](TestRank& r) {
    for (const Bytes bytes : test_sizes)
      for (int root = 0; root < r.size; ++root) {
        const DeviceMemory memory(r.device, MemoryKind::device, bytes + 32);
        r.put(memory.data(), r.patterns(r.rank, 0, bytes + 32, root));
        r.communicator.broadcast(r.lane.id(), root, memory.data() + 13, bytes);
        r.synchronise();
        std::vector<std::byte> expected = r.patterns(r.rank, 0, bytes + 32, root);
        std::ranges::copy(r.patterns(root, 13, bytes, root), expected.begin() + 13);
        ASSERT_EQ(r.get(memory.data(), bytes + 32), expected) << bytes << " bytes of rank " << root;
      }
  });
}

TEST_P(CommunicatorConformance, SmallValuesAreGatheredInPinnedMemory) {
  run([](TestRank& r) {
    const DeviceMemory pinned(r.device, MemoryKind::pinned, times(r.size, sizeof(double)));
    auto* const values = reinterpret_cast<double*>(pinned.data());
    values[r.rank] = r.rank + 0.5;
    r.communicator.all_gather(r.lane.id(), values, sizeof(double));
    r.synchronise();
    for (int q = 0; q < r.size; ++q) EXPECT_EQ(values[q], q + 0.5);
  });
}

TEST_P(CommunicatorConformance, CollectivesOfNoBytesAreMade) {
  run([](TestRank& r) {
    const DeviceMemory memory(r.device, MemoryKind::device, 64);
    r.communicator.all_gather(r.lane.id(), memory.data(), 0);
    r.communicator.exchange(r.lane.id(), memory.data(), memory.data(), 0);
    r.communicator.broadcast(r.lane.id(), r.size - 1, memory.data(), 0);
    r.synchronise();
    r.communicator.check();
  });
}

// Nothing is synchronised but at the end; each round's bytes are new.
TEST_P(CommunicatorConformance, ManyInARowKeepTheOrderOfEvents) {
  constexpr int rounds = 20;
  constexpr Bytes piece = 37;
  run([](TestRank& r) {
    const Bytes whole = times(r.size, piece);
    const DeviceMemory bucket(r.device, MemoryKind::device, whole),
        received(r.device, MemoryKind::device, whole);
    const DeviceMemory there(r.device, MemoryKind::pinned, rounds * piece);
    const DeviceMemory back(r.device, MemoryKind::pinned, rounds * whole);
    for (int round = 0; round < rounds; ++round)
      std::ranges::copy(r.patterns(r.rank, 0, piece, round),
                        there.data() + static_cast<Bytes>(round) * piece);
    for (int round = 0; round < rounds; ++round) {
      const auto k = static_cast<Bytes>(round);
      r.order(r.lane, r.h2d);  // behind the last exchange, which reads the bucket
      r.device.copy(r.h2d.id(), bucket.data() + times(r.rank, piece), there.data() + k * piece, piece,
                    "share");
      r.order(r.h2d, r.lane);
      r.communicator.all_gather(r.lane.id(), bucket.data(), piece);
      r.order(r.d2h, r.lane);
      r.communicator.exchange(r.lane.id(), bucket.data(), received.data(), piece);
      r.order(r.lane, r.d2h);
      r.device.copy(r.d2h.id(), back.data() + k * whole, received.data(), whole, "received");
    }
    r.device.synchronise_lane(r.d2h.id());
    for (int round = 0; round < rounds; ++round)
      for (int q = 0; q < r.size; ++q) {  // every rank sent this one the share of this one
        const std::byte* const at = back.data() + static_cast<Bytes>(round) * whole + times(q, piece);
        ASSERT_EQ(std::vector<std::byte>(at, at + piece), r.patterns(r.rank, 0, piece, round))
            << "round " << round;
      }
  });
}

TEST_P(CommunicatorConformance, BehindABarrierTheWorkBeforeItIsDone) {
  run([](TestRank& r) {
    const DeviceMemory pinned(r.device, MemoryKind::pinned, times(r.size, 8));
    for (int round = 0; round < 5; ++round) {
      std::ranges::copy(r.patterns(r.rank, 0, 8, round), pinned.data() + times(r.rank, 8));
      r.device.launch(
          r.lane.id(),
          {"slow", [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }, nullptr, {}});
      r.communicator.all_gather(r.lane.id(), pinned.data(), 8);
      r.communicator.barrier();
      for (int q = 0; q < r.size; ++q)
        ASSERT_TRUE(std::ranges::equal(r.patterns(q, 0, 8, round),
                                       std::span(pinned.data() + times(q, 8), std::size_t{8})));
      r.synchronise();
      r.communicator.barrier();
    }
  });
}

// Rank 0 makes one call, the others another one.
inline void expect_mismatch(TestRank& r, const std::function<void()>& of_rank_0,
                            const std::function<void()>& of_others, const std::string& first,
                            const std::string& second) {
  const auto error = r.failure_behind(r.rank == 0 ? of_rank_0 : of_others);
  ASSERT_TRUE(error) << "rank " << r.rank;
  EXPECT_EQ(error->failed_rank(), 1);
  EXPECT_THAT(error->what(), testing::HasSubstr("rank 0 calls " + first));
  EXPECT_THAT(error->what(), testing::HasSubstr("where rank 1 calls " + second));
}

TEST_P(CommunicatorConformance, CallsThatDifferFailOnAllRanks) {
  if (size() == 1 || !is_checked()) GTEST_SKIP() << "calls do not differ, or nobody looks";
  run([](TestRank& r) {
    const DeviceMemory pinned(r.device, MemoryKind::pinned, 1024);
    expect_mismatch(
        r, [&] { r.communicator.all_gather(r.lane.id(), pinned.data(), 8); },
        [&] { r.communicator.exchange(r.lane.id(), pinned.data(), pinned.data() + 512, 8); },
        "all_gather of shares of 8 bytes", "exchange of shares of 8 bytes");
    r.expect_final(pinned.data());
  });
  run([](TestRank& r) {
    const DeviceMemory pinned(r.device, MemoryKind::pinned, 1024);
    const Bytes bytes = r.rank == 0 ? 8 : 16;
    const auto call = [&] { r.communicator.all_gather(r.lane.id(), pinned.data(), bytes); };
    expect_mismatch(r, call, call, "all_gather of shares of 8 bytes", "all_gather of shares of 16 bytes");
  });
  run([](TestRank& r) {
    const DeviceMemory pinned(r.device, MemoryKind::pinned, 1024);
    const auto call = [&] { r.communicator.broadcast(r.lane.id(), r.rank == 0 ? 0 : 1, pinned.data(), 9); };
    expect_mismatch(r, call, call, "broadcast of 9 bytes from rank 0", "broadcast of 9 bytes from rank 1");
  });
  run([](TestRank& r) {
    const DeviceMemory pinned(r.device, MemoryKind::pinned, 1024);
    expect_mismatch(
        r, [&] { r.communicator.barrier(); },
        [&] { r.communicator.all_gather(r.lane.id(), pinned.data(), 8); }, "barrier",
        "all_gather of shares of 8 bytes");
  });
}

TEST_P(CommunicatorConformance, AnAbortEndsTheWaitingOfAllRanks) {
  for (int aborting = 0; aborting < size(); ++aborting)
    for (const bool at_barrier : {false, true})
      run([&](TestRank& r) {
        const DeviceMemory memory(r.device, MemoryKind::device, times(r.size, 8));
        r.put(memory.data(), r.patterns(r.rank, 0, memory.bytes(), 0));
        const auto error = r.failure_behind([&] {
          r.communicator.all_gather(r.lane.id(), memory.data(), 8);
          if (r.rank == aborting) return r.communicator.abort("out of paper");
          if (at_barrier) return r.communicator.barrier();
          r.communicator.all_gather(r.lane.id(), memory.data(), 8);
        });
        ASSERT_TRUE(error) << "rank " << r.rank;
        EXPECT_EQ(error->failed_rank(), aborting);
        EXPECT_THAT(error->what(), testing::HasSubstr("out of paper"));
        r.expect_final(memory.data());
        r.communicator.abort("too late");
        EXPECT_THAT(r.failure()->what(), testing::HasSubstr("out of paper"));
      });
}

TEST_P(CommunicatorConformance, AFailedLaneFailsAllRanks) {
  if (!is_checked()) GTEST_SKIP() << "for simulated devices";
  for (int broken = 0; broken < size(); ++broken)
    run([&](TestRank& r) {
      const DeviceMemory pinned(r.device, MemoryKind::pinned, times(r.size, 8));
      const auto error = r.failure_behind([&] {
        if (r.rank == broken) r.break_lane("out of ink");
        r.communicator.all_gather(r.lane.id(), pinned.data(), 8);
      });
      ASSERT_TRUE(error) << "rank " << r.rank;
      EXPECT_EQ(error->failed_rank(), broken);
      EXPECT_THAT(error->what(),
                  testing::AllOf(testing::HasSubstr("out of ink"), testing::HasSubstr("all_gather")));
    });
}

TEST_P(CommunicatorConformance, AnInjectedFaultFailsAllRanks) {
  if (!is_checked()) GTEST_SKIP() << "for simulated devices";
  for (const Fault::Kind kind : {Fault::Kind::call, Fault::Kind::work})
    run([&](TestRank& r) {
      const DeviceMemory pinned(r.device, MemoryKind::pinned, times(r.size, 8));
      if (r.rank == r.size - 1) dynamic_cast<SimulatedDevice&>(r.device).set_fault({0, kind});
      const auto error = r.failure_behind([&] { r.communicator.all_gather(r.lane.id(), pinned.data(), 8); });
      ASSERT_TRUE(error) << "rank " << r.rank;
      EXPECT_EQ(error->failed_rank(), r.size - 1);
      EXPECT_THAT(error->what(), testing::HasSubstr("fault injected"));
    });
}

// One rank's collective reads what its own h2d lane writes, or its d2h lane reads what the collective writes,
// and nothing orders them.
TEST_P(CommunicatorConformance, AMissingWaitIsCaughtOnWhicheverRank) {
  if (!is_checked()) GTEST_SKIP() << "for simulated devices";
  for (int careless = 0; careless < size(); ++careless)
    run([&](TestRank& r) {
      const DeviceMemory memory(r.device, MemoryKind::device, times(r.size, 8));
      const DeviceMemory pinned(r.device, MemoryKind::pinned, times(r.size, 8));
      const auto error = r.failure_behind([&] {
        r.device.copy(r.h2d.id(), memory.data(), pinned.data(), memory.bytes(), "bring in");
        if (r.rank != careless) r.order(r.h2d, r.lane);
        if (r.rank != careless) return r.communicator.exchange(r.lane.id(), memory.data(), pinned.data(), 8);
        EXPECT_THROW(r.communicator.exchange(r.lane.id(), memory.data(), pinned.data(), 8), AccessViolation);
      });
      r.device.synchronise_lane(r.h2d.id());
      ASSERT_TRUE(error) << "rank " << r.rank;
      EXPECT_EQ(error->failed_rank(), careless);
      EXPECT_THAT(error->what(), testing::HasSubstr("nothing orders it after copy 'bring in'"));
    });
}

TEST_P(CommunicatorConformance, WhatArrivesMayNotBeReadBeforeItIsAwaited) {
  if (size() == 1 || !is_checked()) GTEST_SKIP() << "nothing arrives, or nobody looks";
  run([&](TestRank& r) {
    const DeviceMemory memory(r.device, MemoryKind::device, times(r.size, 8)),
        pinned(r.device, MemoryKind::pinned, 64);
    r.put(memory.data(), r.patterns(r.rank, 0, memory.bytes(), 0));
    r.communicator.broadcast(r.lane.id(), 0, memory.data(), 8);
    if (r.rank == 0) {  // it may be read there, and not be written
      r.device.copy(r.d2h.id(), pinned.data(), memory.data(), 8, "early");
      EXPECT_THROW(r.device.copy(r.h2d.id(), memory.data(), pinned.data() + 32, 8, "early"), AccessViolation);
    } else {
      EXPECT_THROW(r.device.copy(r.d2h.id(), pinned.data(), memory.data(), 8, "early"), AccessViolation);
    }
    r.synchronise();
    r.device.synchronise_lane(r.d2h.id());
  });
}

TEST_P(CommunicatorConformance, MisuseFailsAllRanks) {
  run([](TestRank& r) {
    const DeviceMemory pinned(r.device, MemoryKind::pinned, 1024);
    const auto error = r.failure_behind([&] {
      if (r.rank > 0) return r.communicator.all_gather(r.lane.id(), pinned.data(), 8);
      EXPECT_THROW(r.communicator.broadcast(r.lane.id(), r.size, pinned.data(), 8), InvalidInput);
    });
    ASSERT_TRUE(error) << "rank " << r.rank;
    EXPECT_EQ(error->failed_rank(), 0);
  });
  run([](TestRank& r) {
    const DeviceMemory pinned(r.device, MemoryKind::pinned, 1024);
    EXPECT_THROW(r.communicator.exchange(r.lane.id(), pinned.data(), pinned.data() + 8 * r.size - 1, 8),
                 InvalidInput);
    EXPECT_TRUE(r.failure());
  });
  run([](TestRank& r) {
    const DeviceMemory pinned(r.device, MemoryKind::pinned, 1024);
    EXPECT_THROW(
        r.communicator.exchange(r.lane.id(), pinned.data(), pinned.data() + 512, 8, times(r.size, 8) + 1),
        InvalidInput);
    EXPECT_TRUE(r.failure());
  });
  run([](TestRank& r) {
    EXPECT_THROW(r.communicator.broadcast(r.lane.id(), -1, nullptr, 8), InvalidInput);
    EXPECT_TRUE(r.failure());
  });
}

}  // namespace stowage
