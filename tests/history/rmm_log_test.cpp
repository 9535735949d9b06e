#include "src/history/histories.h"

#include <gtest/gtest.h>

#include "tests/support/expect_refused.h"

namespace stowage {
namespace {

const std::string columns_line = "Thread,Time,Action,Pointer,Size,Stream\n";

void expect_log_refused(const std::string& lines, const std::string& words) {
  test::expect_refused([&] { parse_rmm_log(columns_line + lines, "x.csv"); }, "'x.csv', line 2: " + words);
}

TEST(RmmLog, ReadsAllocationsAndReleases) {
  ASSERT_TRUE(is_rmm_log(columns_line));
  EXPECT_FALSE(is_rmm_log("id,lower,upper,size\n"));
  TraceBuilder expected;
  const AllocationId first = expected.allocate(700000, 0), second = expected.allocate(1024, 1);
  expected.free(first);
  expected.free(second);
  expected.allocate(256, 0);
  EXPECT_EQ(
      parse_rmm_log(columns_line + "47,10:00:00:000647,allocate,0x7f0000000000,700000,0x55d0c0ffee00\r\n"
                                   "47,10:00:00:000648,free,0x1,16,0x0\n"  // of before the log begins
                                   "47,10:00:00:000649,allocate,0x7f00000aaf00,1024,0x0\n"
                                   "47,10:00:00:000650,allocate failure,,99999999999,0x0\n"
                                   "47,10:00:00:000651,allocate,(nil),0,0x0\n"
                                   "47,10:00:00:000652,free,0x7f0000000000,700000,0x55d0c0ffee00\n"
                                   "47,10:00:00:000653,free,0x7f00000aaf00,1024,0x0\n"
                                   "48,10:00:00:000654,allocate,0x7f0000000000,256,0x55d0c0ffee00\n\n",
                    "x.csv"),
      std::move(expected).finish());
}

TEST(RmmLog, RefusesWhatIsNone) {
  expect_log_refused("1,2,allocate,0x1,2\n", "has not the columns Thread,Time");
  expect_log_refused("1,2,allocate,0x1,2,0x0,7\n", "has not the columns");
  expect_log_refused("1,2,resize,0x1,2,0x0\n", "has the action 'resize'");
  expect_log_refused("1,2,allocate,0xg,2,0x0\n", "has '0xg' in the place of a number");
  expect_log_refused("1,2,allocate,0x1,-2,0x0\n", "has '-2' in the place of a number");
  expect_log_refused("1,2,allocate,0x1,9223372036854775807,0x0\n",
                     "brings the bytes of all allocations above 4 EiB");
  expect_log_refused(std::string(2000, '1') + "\n", "has more than 1024 characters");
  test::expect_refused(
      [&] { parse_rmm_log(columns_line + "1,2,allocate,0x1,2,0x0\n1,2,allocate,0x1,2,0x0\n", "x.csv"); },
      "'x.csv', line 3: allocates an address that is allocated already");
}

}  // namespace
}  // namespace stowage
