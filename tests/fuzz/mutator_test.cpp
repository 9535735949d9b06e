#include "tests/fuzz/mutator.h"

#include <gtest/gtest.h>

#include <set>

namespace stowage::fuzz {
namespace {

const std::vector<std::string> texts{"{\"a\": 1,\n \"b\": [2, 3]}\n", "x,y\n1,2\n"};

TEST(Mutator, MakesTheSameInputForTheSameRun) {
  const Mutator one(texts, {"word"}, 7);
  const Mutator same(texts, {"word"}, 7);
  const Mutator other(texts, {"word"}, 8);
  std::size_t different = 0;
  for (std::uint64_t run = 200; run-- > 0;) {
    EXPECT_EQ(one.input(run), same.input(run));
    different += one.input(run) != other.input(run) ? 1U : 0U;
  }
  EXPECT_GT(different, 100U);
}

TEST(Mutator, MakesManyInputsOfBoundedLength) {
  const Mutator mutator(texts, {"word"}, 1);
  std::set<std::string> inputs;
  std::set<std::string> found;
  for (std::uint64_t run = 0; run < 2000; ++run) {
    const std::string text = mutator.input(run);
    EXPECT_LE(text.size(), 2 * texts[0].size());
    for (const char* token : {"word", "4294967295", "\"b\": 1", "\"a\": [2"}) {
      if (text.find(token) != std::string::npos) found.insert(token);
    }
    inputs.insert(text);
  }
  EXPECT_GT(inputs.size(), 1000U);
  EXPECT_GE(found.size(), 3U);
  EXPECT_EQ(inputs.count(""), 1U);
}

TEST(Mutator, TakesAnEmptySeed) {
  const Mutator mutator({""}, {}, 1);
  for (std::uint64_t run = 0; run < 200; ++run) EXPECT_EQ(mutator.input(run), "");
}

}  // namespace
}  // namespace stowage::fuzz
