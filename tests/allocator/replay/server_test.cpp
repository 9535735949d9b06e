#include "allocator/replay/server.h"

#include <gtest/gtest.h>

#include <vector>

namespace stowage::caching::replay {
namespace {

class ReplayServer : public ::testing::Test {
 protected:
  // How many of these are served: each freed before the next is made, or, if nested, all of them at the end.
  std::size_t run(const std::vector<Bytes>& sizes, bool nested = false) {
    std::size_t served = 0;
    std::vector<Server::Ticket> tickets;
    for (const Bytes bytes : sizes) {
      const Server::Answer answer = server_.allocate(bytes, 0);
      served += answer.offset ? 1 : 0;
      tickets.push_back(answer.ticket);
      if (nested) continue;
      server_.free(answer.ticket);
      tickets.clear();
    }
    for (const Server::Ticket ticket : tickets) server_.free(ticket);
    return served;
  }

  Server server_;
};

TEST_F(ReplayServer, FindsItsPlaceAgainAfterChangesOfOrder) {
  const std::vector<Bytes> usual{100, 200, 300, 400, 500};
  server_.begin_iteration();
  run(usual);
  server_.begin_iteration();
  EXPECT_EQ(run({100, 400, 500}), 3U);  // two are left out
  server_.begin_iteration();
  EXPECT_EQ(run({100, 111, 200, 222, 300, 400, 500}), 5U);  // two come between
  server_.begin_iteration();
  EXPECT_EQ(run({100, 300, 200, 400, 500}), 4U);  // two change places
  EXPECT_EQ(server_.statistics().misses, 3U);
  EXPECT_TRUE(server_.is_planned());
}

TEST_F(ReplayServer, BeginsAPlanWithThePeriod) {
  for (std::size_t requests = 2; requests < 12; ++requests) {
    server_ = Server();
    run({7, 8, 9});  // which is no part of it
    std::vector<Bytes> sizes;
    for (std::size_t i = 1; i <= requests; ++i) sizes.push_back(100 * i);
    std::size_t whole = 0;
    for (int i = 0; i < 20; ++i) {
      const std::size_t count = run(sizes, true);
      ASSERT_TRUE(count == 0 || count == requests) << count << " of " << requests;
      whole += count == requests ? 1 : 0;
    }
    EXPECT_GE(whole, 12U);
    EXPECT_EQ(server_.statistics().plans, 1U);
    EXPECT_EQ(server_.statistics().misses, 0U);
  }
}

}  // namespace
}  // namespace stowage::caching::replay
