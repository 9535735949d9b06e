#include "src/history/histories.h"

#include <gtest/gtest.h>

#include "tests/support/expect_refused.h"

namespace stowage {
namespace {

using test::expect_refused;

const std::string record_start =
    "# stowage record 1\ntime_ns,pid,thread,event,kind,device,stream,address,bytes,live,result,detail\n";

AllocationTrace parse_record(const std::string& lines) {
  return parse_call_record(record_start + lines, "r.csv");
}

TEST(CallRecord, IsReadAsATrace) {
  const AllocationTrace trace = parse_record(
      "10,1,1,process,-,-1,0,0x0,0,0,0,name\n"
      "20,1,1,alloc,device,0,0,0x1000,100,100,0,\n"
      "30,1,2,alloc,async,0,7,0x2000,50,150,0,place=host\n"
      "35,1,2,refused,device,0,0,0x0,500,150,0,spill=full\n"
      "40,1,1,free,device,0,0,0x1000,100,50,0,\n"
      "50,1,1,alloc,pitched,0,0,0x1000,70,120,0,\n"
      "60,1,1,reset,async,0,7,0x2000,50,70,0,place=host\n"
      "70,1,1,calls,-,-1,0,0x0,0,0,0,6\n"
      "80,1,1,total,-,0,0,0x0,150,70,0,\n");
  TraceBuilder expected;
  const AllocationId first = expected.allocate(100, 0);
  const AllocationId second = expected.allocate(50, 1);
  expected.free(first);
  expected.allocate(70, 0);
  expected.free(second);
  EXPECT_EQ(trace, std::move(expected).finish());
}

TEST(CallRecord, IsOfTheCardAlone) {
  EXPECT_TRUE(parse_record("1,1,1,alloc,managed,0,0,0x1000,100,0,0,\n"
                           "1,1,1,alloc,host_pool,0,0,0x2000,100,0,0,\n"
                           "1,1,1,alloc,host_physical,0,0,0x1,100,0,0,\n"
                           "1,1,1,alloc,graph,0,0,0x3000,100,0,0,\n"
                           "1,1,1,free,unknown,0,0,0x4000,0,0,0,\n"
                           "1,1,1,free,device,0,0,0x5000,100,0,0,\n")
                  .operations.empty());
}

TEST(CallRecord, TellsHandlesFromAddresses) {
  const AllocationTrace trace = parse_record(
      "1,1,1,alloc,physical,0,0,0x10,100,100,0,\n"
      "2,1,1,alloc,device,0,0,0x10,100,200,0,\n"
      "3,1,1,free,physical,0,0,0x10,100,100,0,\n");
  ASSERT_EQ(trace.operations.size(), 3U);
  EXPECT_EQ(trace.operations[2].id, 0U);
}

TEST(CallRecord, MayEndInTheMiddleOfALine) {
  EXPECT_EQ(parse_record("1,1,1,alloc,device,0,0,0x10,100,100,0,\n2,1,1,alloc,dev").operations.size(), 1U);
}

TEST(CallRecord, IsOfOneAllocator) {
  const std::string one = "1,1,1,alloc,device,0,0,0x10,100,100,0,\n";
  expect_refused([&] { parse_record(one + "1,2,2,alloc,device,0,0,0x10,100,100,0,\n"); },
                 "'r.csv' is of several allocators (process 1 on device 0, process 2 on device 0)");
  expect_refused([&] { parse_record(one + "1,1,1,alloc,device,1,0,0x20,100,100,0,\n"); },
                 "process 1 on device 1");
}

TEST(CallRecord, NamesWhatIsWrong) {
  expect_refused([] { parse_call_record("# stowage record 2\n", "r.csv"); }, "'r.csv', line 1: is not");
  expect_refused([] { parse_record("text\n"); }, "'r.csv', line 3: has not 12 fields");
  expect_refused([] { parse_record("1,1,1,alloc,device,0,0,0x10,0,100,0,\n"); }, "its bytes are 0");
  expect_refused([] { parse_record("1,1,1,alloc,device,0,0,0x10,4611686018427387905,0,0,\n"); },
                 "above 4 EiB");
  expect_refused([] { parse_record("1,1,1,alloc,device,0,0,10,100,100,0,\n"); },
                 "the address is no whole number");
  expect_refused([] { parse_record("1,x,1,alloc,device,0,0,0x10,100,100,0,\n"); }, "the process is no");
  expect_refused([] { parse_record("1,1,1,alloc,device,0,-1,0x10,100,100,0,\n"); }, "the stream is no");
  expect_refused(
      [] { parse_record("1,1,1,alloc,device,0,0,0x10,5,5,0,\n1,1,1,alloc,device,0,0,0x10,5,5,0,\n"); },
      "line 4: its address is allocated already");
  expect_refused([] { parse_record(std::string(5000, 'x') + '\n'); }, "has more than 4096 characters");
}

TEST(CallRecord, IsToldFromOthers) {
  EXPECT_TRUE(is_call_record(record_start));
  EXPECT_FALSE(is_call_record("{\"stowage_history\": 1}"));
  EXPECT_FALSE(is_call_record("id,lower,upper,size"));
  EXPECT_FALSE(is_call_record(""));
}

}  // namespace
}  // namespace stowage
