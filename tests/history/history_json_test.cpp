#include "src/history/histories.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "tests/support/expect_refused.h"

namespace stowage {
namespace {

using test::expect_refused;

const std::string header = "{\"stowage_history\": 1}\n";

void expect_refused_lines(const std::string& lines, const std::string& words) {
  expect_refused([&] { parse_history(header + lines, "run.jsonl"); }, words);
}

// The example of docs/history.md.
std::string example() {
  std::ifstream file(std::string(STOWAGE_ROOT) + "/docs/history.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t begin = text.find("```jsonl\n") + 9;
  return text.substr(begin, text.find("```", begin) - begin);
}

TEST(History, OfTheDocumentIsRead) {
  const AllocationTrace trace = parse_history(example(), "history.md");
  EXPECT_EQ(trace.iterations, (std::vector<std::size_t>{1, 3}));
  EXPECT_EQ(trace.allocations, 3U);
  ASSERT_EQ(trace.operations.size(), 5U);
  EXPECT_EQ(trace.operations[0], (TraceOperation{TraceKind::allocate, 0, 4096, 0}));
  EXPECT_EQ(trace.operations[1], (TraceOperation{TraceKind::allocate, 1, 1048576, 1}));
  EXPECT_EQ(trace.operations[2], (TraceOperation{TraceKind::free, 1, 1048576, 1}));
  EXPECT_EQ(trace.operations[3], (TraceOperation{TraceKind::allocate, 2, 1048576, 1}));
}

TEST(History, IsWrittenAndReadBack) {
  const AllocationTrace trace = parse_history(example(), "history.md");
  EXPECT_EQ(parse_history(to_history(trace), "written"), trace);
  EXPECT_EQ(to_history({}), header);
}

TEST(History, IsToldFromLifetimes) {
  EXPECT_TRUE(is_history(header));
  EXPECT_TRUE(is_history(" \n{ \"stowage_history\""));
  EXPECT_FALSE(is_history("id,lower,upper,size\n"));
  EXPECT_FALSE(is_history("{\"stowage_trace\": 1}"));
  EXPECT_FALSE(is_history(""));
}

TEST(History, NamesWhatIsWrong) {
  expect_refused([] { parse_history("", "run.jsonl"); }, "'run.jsonl', line 1: there is no header");
  expect_refused([] { parse_history("{\"stowage_history\": 2}", "x"); },
                 "'x', line 1: 'stowage_history' is not 1");
  expect_refused([] { parse_history("{\"stowage_history\": 1, \"a\": 1}", "x"); },
                 "'a' is not a known field");
  expect_refused_lines("{\"sequence\"", "'run.jsonl', line 2: ");
  expect_refused_lines("3", "line 2: 'the line' is not an object");
  expect_refused_lines("{\"iteration\": 1}", "'sequence' is not there");
  expect_refused_lines("{\"sequence\": -1, \"iteration\": 1}", "'sequence' is not a whole number");
  expect_refused_lines("{\"sequence\": 1, \"op\": \"move\"}", "'op' is not 'allocate' or 'free'");
  expect_refused_lines("{\"sequence\": 1, \"iteration\": 1, \"op\": \"free\"}", "'op' is not a known field");
  expect_refused_lines(history_allocate(1, 5, 1, 0) + history_free(2, 5) + history_free(3, 5),
                       "line 4: 'id' is freed already, and not allocated since");
  expect_refused_lines(history_allocate(1, 5, 1, 0) + history_allocate(2, 5, 1, 0),
                       "line 3: 'id' is allocated already, since line 2");
  expect_refused_lines(history_iteration(2, 1) + history_iteration(2, 2), "'sequence' is not above 2");
  expect_refused_lines(history_iteration(2, 1) + history_iteration(3, 1), "'iteration' is not above 1");
  const Bytes half = Bytes{1} << 61U;
  expect_refused_lines(
      history_allocate(1, 1, half, 0) + history_allocate(2, 2, half, 0) + history_allocate(3, 3, 1, 0),
      "line 4: 'bytes' brings the bytes of all allocations above 4 EiB");
  expect_refused_lines(std::string(5000, ' ') + "1", "has more than 4096 characters");
}

TEST(History, TakesSomeThousandStreamsAtMost) {
  std::string lines;
  for (std::uint64_t i = 0; i < 4097; ++i) lines += history_allocate(i, i, 1, 1000 * i);
  expect_refused_lines(lines, "line 4098: is of stream 4097");
}

TEST(History, MayBeginInMidRunAndHaveRequestsOfNoBytes) {
  const std::string lines = history_free(1, 5) + history_allocate(2, 5, 8, 0) + history_allocate(3, 6, 0, 0) +
                            history_free(4, 6) + history_free(5, 5);
  EXPECT_EQ(parse_history(history_header() + lines, "x"),
            parse_history(history_header() + history_allocate(1, 5, 8, 0) + history_free(2, 5), "x"));
}

TEST(History, TakesAnIdAgainOnceItIsFreed) {
  const std::string lines = history_allocate(1, 5, 1, 0) + history_free(2, 5) + history_allocate(3, 5, 2, 0);
  const AllocationTrace trace = parse_history(header + lines, "x");
  EXPECT_EQ(trace.allocations, 2U);
  EXPECT_EQ(trace.operations[2], (TraceOperation{TraceKind::allocate, 1, 2, 0}));
}

}  // namespace
}  // namespace stowage
