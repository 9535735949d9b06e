#include "offload/engine/value_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "stowage/error.h"
#include "stowage/simulated_device.h"

namespace stowage {
namespace {

std::byte byte_at(Bytes offset) { return static_cast<std::byte>(offset * 7 + offset / 999); }

// Two ranks; each calls body(exchange, rank).
template <class Body>
void on_two(Body body) {
  const auto first = open_simulated_device({.host_capacity = ValueExchange::most_bytes});
  const auto second = open_simulated_device({.host_capacity = 0});  // ordinary memory does, too
  const auto communicators = make_local_communicators(std::array<Device*, 2>{first.get(), second.get()});
  std::thread other([&] {
    ValueExchange exchange(*second, *communicators[1]);
    body(exchange, 1);
  });
  ValueExchange exchange(*first, *communicators[0]);
  body(exchange, 0);
  other.join();
}

// Of more bytes than travel at once.
TEST(ValueExchange, BringsAValueToAllWhoWantIt) {
  constexpr Bytes bytes = 2 * ValueExchange::most_bytes + 12'345;
  for (const int owner : {0, 1})
    for (const bool both : {true, false})
      on_two([&](ValueExchange& exchange, int rank) {
        std::vector<std::byte> value(bytes);
        const auto read = [&](Bytes offset, std::span<std::byte> piece) {
          EXPECT_EQ(rank, owner);
          EXPECT_LE(piece.size(), ValueExchange::most_bytes);
          for (Bytes i = 0; i < piece.size(); ++i) piece[i] = byte_at(offset + i);
        };
        const bool wants = both || rank == 0;
        exchange.send(owner, bytes, read, wants ? value.data() : nullptr);
        for (Bytes i = 0; wants && i < bytes; ++i) ASSERT_EQ(value[i], byte_at(i)) << i;
      });
}

TEST(ValueExchange, TellsWhatIsRead) {
  on_two([](ValueExchange& exchange, int rank) {
    const ValueRequest sent{7, 1_GiB, 5};
    if (rank == 0) return exchange.tell(sent);
    const ValueRequest told = exchange.told();
    EXPECT_EQ(told.tensor, sent.tensor);
    EXPECT_EQ(told.offset, sent.offset);
    EXPECT_EQ(told.bytes, sent.bytes);
  });
}

// As NCCL's where another rank has failed: its work on the lane ends in order, and `check` alone tells.
class Aborted : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void all_gather(LaneId, const void*, void*, Bytes, Bytes) override {}
  void exchange(LaneId, const void*, void*, Bytes, Bytes) override {}
  void broadcast(LaneId, int, void*, Bytes) override {}
  void barrier() override {}
  void abort(std::string_view) override {}
  void check() override { throw CommunicatorError("rank 1 has failed", "broadcast", 1); }
};

TEST(ValueExchange, WhatAnAbortedBroadcastLeftIsNoValue) {
  const auto device = open_simulated_device({});
  Aborted communicator;
  ValueExchange exchange(*device, communicator);
  std::array<std::byte, 16> value{};
  const auto read = [](Bytes, std::span<std::byte> piece) {
    std::fill(piece.begin(), piece.end(), std::byte{1});
  };
  for (const int owner : {0, 1})
    EXPECT_THROW(exchange.send(owner, value.size(), read, value.data()), CommunicatorError) << owner;
  EXPECT_EQ(value, (std::array<std::byte, 16>{}));
  EXPECT_THROW(exchange.tell({}), CommunicatorError);
  EXPECT_THROW(exchange.told(), CommunicatorError);
}

}  // namespace
}  // namespace stowage
