#include "samples/run/run_cards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string_view>

#include "stowage/error.h"

namespace stowage::samples {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "accepted";
}

CardReport card(std::string_view name, std::string_view uuid) {
  CardReport report;
  std::copy(name.begin(), name.end(), report.name.begin());
  std::copy(uuid.begin(), uuid.end(), report.uuid.begin());
  return report;
}

TEST(RunCards, AProcessTakesTheCardOfItsNumber) {
  EXPECT_EQ(card_of_process("", 0, 0, 4), 0);
  EXPECT_EQ(card_of_process("", 3, 0, 4), 3);
  EXPECT_EQ(card_of_process("", 1, 2, 4), 3);
}

TEST(RunCards, AProcessThatSeesOneCardTakesIt) {
  EXPECT_EQ(card_of_process("", 3, 0, 1), 0);
  EXPECT_EQ(card_of_process("", 0, 0, 1), 0);
}

TEST(RunCards, AProcessWithoutACardIsTold) {
  EXPECT_THAT(refusal([] { card_of_process("a launch of 4 processes", 2, 0, 2); }),
              AllOf(HasSubstr("a launch of 4 processes: process 2 of this machine"), HasSubstr("it sees 2;"),
                    HasSubstr("CUDA_VISIBLE_DEVICES")));
  EXPECT_THAT(refusal([] { card_of_process("a launch of 2 processes", 1, 3, 4); }),
              HasSubstr("it sees 4, of which card 3 is the first to use"));
  EXPECT_THAT(refusal([] { card_of_process("a launch of 2 processes", 0, 1, 1); }), HasSubstr("it sees 1"));
}

TEST(RunCards, EachRankHasACardOfItsOwn) {
  const auto told = [](std::vector<CardReport> cards) {
    return refusal([&] { require_own_cards("a launch of 4 processes", cards); });
  };
  EXPECT_EQ(told({card("A", "GPU-1"), card("A", "GPU-2"), card("A", "GPU-3")}), "accepted");
  EXPECT_THAT(told({card("A", "GPU-1"), card("A", "GPU-2"), card("A", "GPU-3"), card("A", "GPU-2")}),
              HasSubstr("a launch of 4 processes: ranks 1 and 3 are on one card, GPU-2: "));
  EXPECT_EQ(told({card("A", ""), card("A", "")}), "accepted");  // nobody knows
  EXPECT_THAT(told({card("A", "GPU-1"), card("B", "GPU-2")}),
              HasSubstr("the cards of ranks 0 and 1 are different ones, 'A' and 'B'"));
}

}  // namespace
}  // namespace stowage::samples
