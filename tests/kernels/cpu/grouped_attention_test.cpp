// Grouped queries, windows and packed documents, judged by attention without them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/cpu/attention.h"
#include "stowage/error.h"
#include "tests/kernels/kernel_check.h"

namespace stowage::cpu {
namespace {

using namespace stowage::test;

using Numbers = std::vector<double>;

struct Results {
  Numbers out, log_sum_exp, dqkv;
};

Results attend(const AttentionShape& shape, const Numbers& qkv, const Numbers& dout) {
  const std::int64_t tokens = shape.samples * shape.sequence;
  Results made{unwritten<double>(tokens * shape.width), unwritten<double>(tokens * shape.heads),
               unwritten<double>(tokens * shape.packed_width())};
  attention(shape, qkv.data(), made.out.data(), made.log_sum_exp.data());
  attention_backward(shape, qkv.data(), made.out.data(), made.log_sum_exp.data(), dout.data(),
                     made.dqkv.data());
  return made;
}

AttentionShape causal_shape(std::int64_t samples, std::int64_t heads, std::int64_t key_heads,
                            std::int64_t sequence, std::int64_t head_width) {
  AttentionShape shape;
  shape.samples = samples;
  shape.heads = heads;
  shape.key_heads = key_heads;
  shape.sequence = sequence;
  shape.width = heads * head_width;
  return shape;
}

Numbers qkv_of(const AttentionShape& shape) {
  return numbers<double>(shape.samples * shape.sequence * shape.packed_width(), 1, 2);
}
Numbers dout_of(const AttentionShape& shape) {
  return numbers<double>(shape.samples * shape.sequence * shape.width, 2);
}

// Elements [from, from + count) of a vector.
Numbers part(const Numbers& all, std::int64_t from, std::int64_t count) {
  return {all.begin() + from, all.begin() + from + count};
}

// Three query heads for each of two key heads.
TEST(GroupedAttention, EqualsAttentionWithRepeatedKeys) {
  constexpr std::int64_t heads = 6, key_heads = 2, group = 3, width = 5;
  const AttentionShape shape = causal_shape(2, heads, key_heads, 70, width);
  const AttentionShape repeated = causal_shape(2, heads, heads, 70, width);
  const Numbers qkv = qkv_of(shape), dout = dout_of(shape);
  // Calls body(element of the grouped tensor, element of the repeated one).
  const auto for_each_copy = [&](auto body) {
    for (std::int64_t n = 0; n < 140; ++n) {
      for (std::int64_t head = 0; head < 3 * heads; ++head) {
        const std::int64_t of_part = head % heads;
        const std::int64_t from =
            head < heads ? head : heads + (head / heads - 1) * key_heads + of_part / group;
        for (std::int64_t c = 0; c < width; ++c)
          body(static_cast<std::size_t>(n * shape.packed_width() + from * width + c),
               static_cast<std::size_t>(n * repeated.packed_width() + head * width + c));
      }
    }
  };
  Numbers copied(static_cast<std::size_t>(140 * repeated.packed_width()));
  for_each_copy([&](std::size_t from, std::size_t to) { copied[to] = qkv[from]; });
  const Results found = attend(shape, qkv, dout), right = attend(repeated, copied, dout);
  Numbers summed(qkv.size());
  for_each_copy([&](std::size_t to, std::size_t from) { summed[to] += right.dqkv[from]; });
  EXPECT_EQ(found.out, right.out);
  EXPECT_EQ(found.log_sum_exp, right.log_sum_exp);
  expect_close(found.dqkv, summed, 1e-12);
}

TEST(GroupedAttention, AGroupOfOneHasTheBitsOfHeadsOfTheirOwn) {
  const AttentionShape shape = causal_shape(2, 3, 3, 70, 5);
  AttentionShape plain = shape;
  plain.key_heads = 0;
  const Results found = attend(shape, qkv_of(shape), dout_of(shape));
  EXPECT_EQ(found.dqkv, attend(plain, qkv_of(shape), dout_of(shape)).dqkv);
}

TEST(AttentionWindow, OfTheWholeSequenceHasTheBitsOfNone) {
  AttentionShape shape = causal_shape(1, 2, 1, 300, 8);
  const Results right = attend(shape, qkv_of(shape), dout_of(shape));
  shape.window = 300;
  const Results found = attend(shape, qkv_of(shape), dout_of(shape));
  EXPECT_EQ(found.out, right.out);
  EXPECT_EQ(found.dqkv, right.dqkv);
}

// Query 299 sees keys from 260 on, query 298 one more.
TEST(AttentionWindow, WhatLeftItChangesNothing) {
  AttentionShape shape = causal_shape(1, 2, 1, 300, 8);
  shape.window = 40;
  Numbers qkv = qkv_of(shape);
  const Numbers before = attend(shape, qkv, dout_of(shape)).out;
  std::fill(qkv.begin(), qkv.begin() + 260 * shape.packed_width(), 1e30);
  const Numbers after = attend(shape, qkv, dout_of(shape)).out;
  EXPECT_EQ(part(before, 299 * 16, 16), part(after, 299 * 16, 16));
  EXPECT_NE(part(before, 298 * 16, 16), part(after, 298 * 16, 16));
}

// The block of queries from 256 on sees no key before 217, and multiplies none of them.
TEST(AttentionWindow, SkipsTheKeysThatNoQueryOfABlockSees) {
  AttentionShape shape = causal_shape(1, 2, 1, 300, 8);
  shape.window = 40;
  Numbers qkv = qkv_of(shape);
  const Numbers before = attend(shape, qkv, dout_of(shape)).out;
  std::fill(qkv.begin(), qkv.begin() + 217 * shape.packed_width(), std::nan(""));
  const Numbers after = attend(shape, qkv, dout_of(shape)).out;
  EXPECT_EQ(part(before, 256 * 16, 44 * 16), part(after, 256 * 16, 44 * 16));
}

// Two samples of documents of several lengths, each beside itself as a sample of its own.
TEST(PackedDocuments, EqualEachDocumentAlone) {
  const std::vector<std::vector<std::int64_t>> lengths = {{1, 99, 64, 136}, {300}};
  AttentionShape shape = causal_shape(2, 4, 2, 300, 8);
  shape.window = 80;
  std::vector<std::int32_t> begins;
  for (const auto& sample : lengths) {
    std::int32_t begin = 0;
    for (const std::int64_t length : sample) {
      begins.insert(begins.end(), static_cast<std::size_t>(length), begin);
      begin += static_cast<std::int32_t>(length);
    }
  }
  shape.begins = begins.data();
  const Numbers qkv = qkv_of(shape), dout = dout_of(shape);
  const Results packed = attend(shape, qkv, dout);
  std::int64_t at = 0;
  for (const auto& sample : lengths) {
    for (const std::int64_t length : sample) {
      AttentionShape alone = causal_shape(1, 4, 2, length, 8);
      alone.window = 80;
      const auto rows = [&](const Numbers& all, std::int64_t width) {
        return part(all, at * width, length * width);
      };
      const Results right = attend(alone, rows(qkv, shape.packed_width()), rows(dout, shape.width));
      expect_close(rows(packed.out, shape.width), right.out, 1e-13);
      expect_close(rows(packed.dqkv, shape.packed_width()), right.dqkv, 1e-12);
      at += length;
    }
  }
}

TEST(PackedDocuments, ThatBeginBehindATokenOrFallAreRefused) {
  AttentionShape shape = causal_shape(2, 1, 1, 3, 4);
  const auto complaint = [&](std::vector<std::int32_t> begins) -> std::string {
    shape.begins = begins.data();
    try {
      attend(shape, qkv_of(shape), dout_of(shape));
    } catch (const InvalidInput& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(complaint({0, 1, 2, 0, 0, 2}), "");
  EXPECT_NE(complaint({0, 0, 1, 0, 0, 3}).find("token 2 of sample 1 begins at 3; give an index from 0 to 2"),
            std::string::npos);
  EXPECT_NE(complaint({0, 1, 0, 0, 0, 0}).find("token 2 of sample 0 begins at 0; give an index from 1 to 2"),
            std::string::npos);
  EXPECT_NE(complaint({0, 0, 0, 1, 1, 1}).find("token 0 of sample 1 begins at 1"), std::string::npos);
  EXPECT_NE(complaint({-1, 0, 0, 0, 0, 0}).find("token 0 of sample 0 begins at -1"), std::string::npos);
}

}  // namespace
}  // namespace stowage::cpu
