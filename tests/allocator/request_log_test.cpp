#include "allocator/request_log.h"

#include <gtest/gtest.h>

namespace stowage {
namespace {

constexpr std::size_t never = LoggedRequest::never;

void expect_request(const LoggedRequest& request, Bytes bytes, std::size_t made, std::size_t freed) {
  EXPECT_EQ(request.bytes, bytes);
  EXPECT_EQ(request.made, made);
  EXPECT_EQ(request.freed, freed);
}

TEST(RequestLog, IsAWindow) {
  RequestLog log;
  const std::size_t a = log.allocate(10, 3);
  log.allocate(20, 4);
  log.free(RequestLog::no_place);
  log.free(a);
  const auto window = log.window();
  ASSERT_EQ(window.size(), 2U);
  expect_request(window[0], 10, 0, 3);
  EXPECT_EQ(window[0].stream, 3U);
  expect_request(window[1], 20, 1, never);
  log.clear();
  EXPECT_EQ(log.size(), 0U);
  EXPECT_TRUE(log.window().empty());
}

// In nested lifetimes: 10 made, 20 made and freed, 10 freed.
void log_nest(RequestLog& log) {
  const std::size_t outer = log.allocate(10, 0);
  log.free(log.allocate(20, 0));
  log.free(outer);
}

TEST(RequestLog, ShowsItsPeriod) {
  RequestLog log;
  log.allocate(99, 0);
  EXPECT_FALSE(log.period());
  for (int i = 0; i < 2; ++i) log_nest(log);
  const auto period = log.period();
  ASSERT_TRUE(period);
  ASSERT_EQ(period->requests.size(), 2U);
  expect_request(period->requests[0], 10, 0, 3);
  expect_request(period->requests[1], 20, 1, 2);
  EXPECT_EQ(period->next_request, 0U);
  EXPECT_EQ(period->left, 0U);
}

TEST(RequestLog, CutsItsPeriodWhereTheLeastIsThere) {
  RequestLog log;
  log_nest(log);
  log_nest(log);
  log.allocate(10, 0);
  const auto period = log.period();
  ASSERT_TRUE(period);
  expect_request(period->requests[0], 10, 0, 3);
  expect_request(period->requests[1], 20, 1, 2);
  EXPECT_EQ(period->next_request, 1U);
  EXPECT_EQ(period->left, 3U);
}

// The same sizes, but each frees another than the one before did.
TEST(RequestLog, ComparesWhatIsFreed) {
  RequestLog log;
  for (const bool first_in_first_out : {true, false, true, true}) {
    const std::size_t a = log.allocate(10, 0), b = log.allocate(10, 0);
    log.free(first_in_first_out ? a : b);
    log.free(first_in_first_out ? b : a);
  }
  log.allocate(7, 0);
  EXPECT_FALSE(log.period());
}

// Blocks that pile up: no repetition of theirs comes again in the same memory.
TEST(RequestLog, HasNoPeriodWhereBlocksStay) {
  RequestLog log;
  for (int i = 0; i < 8; ++i) {
    log.allocate(10, 0);
    log.free(log.allocate(20, 0));
  }
  EXPECT_FALSE(log.period());
}

}  // namespace
}  // namespace stowage
