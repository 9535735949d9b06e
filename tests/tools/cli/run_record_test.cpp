#include "tools/cli/run_record.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace stowage {
namespace {

RunRecord read(const std::string& lines) {
  std::istringstream text(
      "# stowage record 1\ntime_ns,pid,thread,event,kind,device,stream,address,bytes,live,result,detail\n" +
      lines);
  return read_run_record(text);
}

TEST(RunRecord, SumsUpEachKind) {
  const RunRecord record = read(
      "10,1,1,process,-,-1,0,0x0,0,0,0,name\n"
      "20,1,1,alloc,device,0,0,0x1000,100,100,0,\n"
      "30,1,1,alloc,device,0,0,0x2000,50,150,0,\n"
      "40,1,1,free,device,0,0,0x1000,100,50,0,\n"
      "50,1,1,alloc,async,0,3,0x3000,7,57,0,\n"
      "60,1,1,reset,async,0,3,0x3000,7,50,0,\n"
      "70,1,1,refused,device,0,0,0x0,1000,50,0,\n"
      "80,1,1,failed,device,0,0,0x0,1000,50,2,\n");
  ASSERT_EQ(record.processes.size(), 1U);
  const RunProcess& process = record.processes.at(1);
  EXPECT_EQ(process.program, "name");
  const RunKind& device = process.kinds.at("device");
  EXPECT_EQ(device.calls, 2U);
  EXPECT_EQ(device.bytes, 150U);
  EXPECT_EQ(device.frees, 1U);
  EXPECT_EQ(device.refused, 1U);
  EXPECT_EQ(device.failed, 1U);
  EXPECT_EQ(device.live, 50U);
  EXPECT_EQ(device.peak, 150U);
  EXPECT_EQ(process.kinds.at("async").live, 0U);
  EXPECT_EQ(process.cards.at(0).peak, 150U);
  EXPECT_EQ(record.calls(), 6U) << "a reset is no call";
  EXPECT_EQ(record.unreadable, 0U);
}

TEST(RunRecord, KeepsProcessesApart) {
  const RunRecord record = read(
      "10,1,1,alloc,device,0,0,0x1000,100,100,0,\n"
      "10,2,2,alloc,device,0,0,0x1000,10,10,0,\n"
      "10,2,2,alloc,device,1,0,0x2000,5,5,0,\n");
  EXPECT_EQ(record.processes.at(1).cards.at(0).live, 100U);
  EXPECT_EQ(record.processes.at(2).cards.at(0).live, 10U);
  EXPECT_EQ(record.processes.at(2).cards.at(1).live, 5U);
}

TEST(RunRecord, KeepsProgramsOfOneProcessApart) {
  const RunRecord record = read(
      "10,1,1,process,-,-1,0,0x0,0,0,0,one\n"
      "11,1,1,alloc,device,0,0,0x1000,100,100,0,\n"
      "12,2,2,process,-,-1,0,0x0,0,0,0,other\n"
      "13,1,1,process,-,-1,0,0x0,0,0,0,two\n"
      "14,1,1,alloc,device,0,0,0x1000,10,10,0,\n"
      "15,1,1,calls,-,-1,0,0x0,0,0,0,1\n");
  ASSERT_EQ(record.processes.size(), 3U);
  EXPECT_EQ(record.images.at(1), 2);
  EXPECT_EQ(record.processes.at({1, 0}).program, "one");
  EXPECT_EQ(record.processes.at({1, 0}).kinds.at("device").live, 100U);
  EXPECT_EQ(record.processes.at({1, 1}).program, "two");
  EXPECT_EQ(record.processes.at({1, 1}).kinds.at("device").live, 10U);
  EXPECT_EQ(record.without_end(), 0U) << "an exec ends a program";
}

TEST(RunRecord, TakesTotalsAlone) {
  const RunRecord record = read(
      "10,1,1,process,-,-1,0,0x0,0,0,0,name\n"
      "20,1,1,calls,-,-1,0,0x0,0,0,0,1\n"
      "20,1,1,total,-,0,0,0x0,100,100,0,\n"
      "30,1,1,calls,-,-1,0,0x0,0,0,0,12\n"
      "30,1,1,total,-,0,0,0x0,300,0,0,\n");
  EXPECT_EQ(record.calls(), 12U);
  EXPECT_EQ(record.processes.at(1).cards.at(0).peak, 300U);
}

TEST(RunRecord, SumsUpWhatWentToTheHost) {
  const RunRecord record = read(
      "1000000000,1,1,alloc,device,0,0,0x1000,100,100,0,\n"
      "2000000000,1,1,alloc,device,0,0,0x2000,50,100,0,place=host\n"
      "3000000000,1,1,alloc,async,0,0,0x3000,10,100,0,place=host\n"
      "5000000000,1,1,free,device,0,0,0x2000,50,100,0,place=host\n"
      "5000000000,1,1,refused,device,0,0,0x0,90,100,0,spill=full\n"
      "5000000000,1,1,failed,device,0,0,0x0,90,100,2,spill=failed\n"
      "5000000000,1,1,not_exported,-,-1,0,0x3000,0,0,1,place=host\n"
      "6000000000,1,1,calls,-,-1,0,0x0,0,0,0,6\n"
      "6000000000,1,1,spilled,-,-1,0,0x0,60,10,0,2\n");
  const RunSpill& spill = record.processes.at(1).spill;
  EXPECT_EQ(spill.calls, 2U);
  EXPECT_EQ(spill.bytes, 60U);
  EXPECT_EQ(spill.peak, 60U);
  EXPECT_EQ(spill.live, 10U);
  EXPECT_EQ(spill.full, 1U);
  EXPECT_EQ(spill.failed, 1U);
  EXPECT_DOUBLE_EQ(spill.held.byte_seconds(), 50 * 3 + 10 * 3) << "until the end";
  EXPECT_DOUBLE_EQ(record.processes.at(1).cards.at(0).held.byte_seconds(), 100 * 5);
  EXPECT_EQ(record.processes.at(1).kinds.at("device").calls, 2U) << "they count as what they were asked for";
  EXPECT_EQ(record.processes.at(1).cards.at(0).peak, 100U) << "but are not the card's";
  EXPECT_EQ(record.not_exported, 1U);
  EXPECT_EQ(record.unreadable, 0U);
}

TEST(RunRecord, TakesTheTotalOfWhatWentToTheHostAlone) {
  const RunRecord record = read("20,1,1,spilled,-,-1,0,0x0,60,10,0,2\n");
  EXPECT_EQ(record.processes.at(1).spill.calls, 2U);
  EXPECT_EQ(record.processes.at(1).spill.peak, 60U);
}

TEST(RunHeld, NeverGoesBackInTime) {
  RunHeld held;
  held.add(2'000'000'000, 10);
  held.add(1'000'000'000, 20);
  held.add(3'000'000'000, 0);
  EXPECT_DOUBLE_EQ(held.byte_seconds(), 20);
}

TEST(RunRecord, CountsWhatIsNoneOfItsLines) {
  const RunRecord record = read(
      "10,1,1,alloc,device,0,0,0x1000,100,100,0,\n"
      "text\n"
      "10,1,1,alloc,device,0,0,0x1000,-1,100,0,\n"
      "10,1,1,alloc,device,0,0,0x1000,18446744073709551616,100,0,\n"
      "10,x,1,alloc,device,0,0,0x1000,1,100,0,\n"
      "10,1,1,dance,device,0,0,0x1000,1,100,0,\n"
      "10,1,1,alloc,device,0,0,0x1000,1,100,0,,\n"
      "10,1,1,alloc,dev");
  EXPECT_EQ(record.unreadable, 7U);
  EXPECT_EQ(record.calls(), 1U);
}

TEST(RunRecord, NeverCountsBelowNothing) {
  const RunRecord record = read("10,1,1,free,device,0,0,0x1000,100,0,0,\n");
  EXPECT_EQ(record.processes.at(1).kinds.at("device").live, 0U);
}

TEST(RunRecord, TellsWhatWasMissedAndShared) {
  const RunRecord record = read(
      "10,1,1,missed,-,-1,0,0x3a98,0,0,0,cuMemAlloc\n"
      "10,1,1,export,-,-1,0,0x1000,0,0,0,\n"
      "10,1,1,open,-,-1,0,0x1000,0,0,0,\n"
      "10,1,1,close,-,-1,0,0x1000,0,0,0,\n");
  EXPECT_EQ(record.missed.at("cuMemAlloc"), 1);
  EXPECT_EQ(record.exports, 1U);
  EXPECT_EQ(record.opens, 1U);
  EXPECT_EQ(record.unreadable, 0U);
}

TEST(RunCurve, HoldsEachStepsLargest) {
  RunCurve curve;
  curve.add(500, 10);
  curve.add(600, 30);
  curve.add(700, 20);
  curve.add(3500, 5);
  EXPECT_EQ(curve.step_ns(), 1000U);
  EXPECT_EQ(curve.values(1000), (std::vector<Bytes>{30, 20, 20, 20})) << "it stays until it changes";
  EXPECT_EQ(curve.values(2000), (std::vector<Bytes>{30, 20}));
}

TEST(RunCurve, KeepsItsPeakHoweverLongItGets) {
  RunCurve curve;
  for (std::uint64_t i = 0; i < 100'000; ++i) curve.add(i * 10'000, i == 777 ? 1000 : i % 10);
  const std::vector<Bytes> values = curve.values(curve.step_ns());
  EXPECT_LE(values.size(), 2048U);
  EXPECT_EQ(*std::max_element(values.begin(), values.end()), 1000U);
  EXPECT_EQ(std::count(values.begin(), values.end(), 1000U), 1);
  curve.add(~std::uint64_t{0}, 1);
  EXPECT_LE(curve.values(curve.step_ns()).size(), 2048U) << "no time is too far";
}

TEST(RunCurve, NeverGoesBackInTime) {
  RunCurve curve;
  curve.add(5000, 10);
  curve.add(1000, 20);
  EXPECT_EQ(curve.values(1000), (std::vector<Bytes>{0, 0, 0, 0, 0, 20}));
}

}  // namespace
}  // namespace stowage
