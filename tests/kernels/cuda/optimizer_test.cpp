#include <algorithm>
#include <cmath>

#include "tests/kernels/cuda/cuda_kernel_case.h"

namespace stowage::test {
namespace {

class CudaOptimizer : public CudaKernelTest {
 protected:
  static constexpr std::int64_t counts[] = {1, 3, 4, 8, 31, 2051};

  static TestOperand scalar(double value) { return {Role::f64, {}, {value}}; }

  static KernelCase adamw(std::int64_t count, DataType type, double beta2 = 0.95, double epsilon = 1e-8) {
    std::vector<double> second = draws(count, 4, 0x1p-12);
    for (double& value : second) value = std::abs(value);
    KernelCase of{"adamw",
                  {{"beta1", 0.9}, {"beta2", beta2}, {"epsilon", epsilon}, {"weight_decay", 0.1}},
                  {{Role::work, {count}, draws(count, 1)},
                   {Role::work, {count}, draws(count, 2, 0.125)},
                   {Role::sums, {count}, draws(count, 3, 0x1p-5)},
                   {Role::sums, {count}, second},
                   {Role::f64, {2}, {1.7, 0.37}}},
                  {{Role::work, {count}, {}}, {Role::sums, {count}, {}}, {Role::sums, {count}, {}}},
                  {{0, 0}, {1, 2}, {2, 3}}};
    if (type == DataType::f32) return of;
    // What a master may be off its weight: of f16, half of the last place, in those of f32.
    const int least = type == DataType::bf16 ? -32768 : -4096;
    const Role low = type == DataType::bf16 ? Role::i16 : Role::i32;
    of.reads.push_back({low, {count}, whole_draws(count, 5, -2 * least)});
    std::vector<double>& lows = of.reads.back().values;
    for (std::size_t i = 0; i < lows.size(); ++i) {
      lows[i] += least;
      // A distance below zero would make a NaN of the weight 0, as no master does.
      if (type == DataType::f16 && of.reads.front().values[i] == 0) lows[i] = std::abs(lows[i]);
    }
    of.writes.push_back({low, {count}, {}});
    of.in_place.emplace_back(3, 5);
    return of;
  }
};

TEST_F(CudaOptimizer, AdamWHasTheCpusBits) {
  for (const std::int64_t count : counts) {
    for (const DataType type : {DataType::f32, DataType::bf16, DataType::f16}) {
      KernelCase of = adamw(count, type);
      const std::vector<Output> right = run_cpu(of, type, type);
      EXPECT_EQ(run_cuda(of, type), right) << count << " elements in " << to_string(type);
      of.in_place.clear();
      EXPECT_EQ(run_cuda(of, type, 1), right) << count << " elements in " << to_string(type) << ", unaligned";
    }
  }
}

// BERT's constants lead to other values than GPT's, and to the CPU's.
TEST_F(CudaOptimizer, AdamWHasTheCpusBitsWithOtherConstants) {
  for (const DataType type : {DataType::f32, DataType::bf16, DataType::f16}) {
    const auto found = run_cuda(adamw(257, type, 0.999, 1e-6), type);
    EXPECT_EQ(found, run_cpu(adamw(257, type, 0.999, 1e-6), type, type));
    EXPECT_NE(found, run_cuda(adamw(257, type), type));
    EXPECT_NE(found, run_cuda(adamw(257, type, 0.999, 1e-8), type));
  }
}

// In place, as moments that are kept in fewer bytes are.
KernelCase with_compact_moments(KernelCase of, Role role, std::int64_t count) {
  const bool codes = role == Role::u8;
  for (const std::size_t moment : {1U, 2U}) {
    TestOperand& read = of.reads[moment + 1];
    read.role = of.writes[moment].role = role;
    if (codes) read.values = whole_draws(count, static_cast<unsigned>(10 + moment), 256);
  }
  of.in_place = {{0, 0}, {1, 2}, {2, 3}};
  if (of.reads.size() == 6) of.in_place.emplace_back(3, 5);
  if (codes) {
    const std::int64_t blocks = (count + 255) / 256;
    for (const unsigned scale : {12U, 13U}) {
      std::vector<double> largest = draws(blocks, scale, 0x1p-4);
      for (double& value : largest) value = std::abs(value);
      of.in_place.emplace_back(of.writes.size(), of.reads.size());
      of.reads.push_back({Role::sums, {blocks}, largest});
      of.writes.push_back({Role::sums, {blocks}, {}});
    }
  } else {
    of.attributes["key"] = std::int64_t{7};
    of.attributes["first_element"] = std::int64_t{12};
  }
  return of;
}

TEST_F(CudaOptimizer, CompactMomentsHaveTheCpusBits) {
  for (const std::int64_t count : {1, 31, 256, 257, 2048, 4099}) {
    for (const Role moments : {Role::bf16, Role::u8}) {
      for (const DataType type : {DataType::f32, DataType::bf16, DataType::f16}) {
        KernelCase of = with_compact_moments(adamw(count, type), moments, count);
        of.step.loss_scale = type == DataType::f16 ? 1024 : 1;
        const std::vector<Output> right = run_cpu(of, type, type);
        EXPECT_EQ(run_cuda(of, type), right) << count << " elements in " << to_string(type);
        EXPECT_EQ(run_cuda(of, type, 1), right)
            << count << " elements in " << to_string(type) << ", unaligned";
        of.reads[4].values = {INFINITY, 0};  // then nothing changes
        const std::vector<Output> skipped = run_cuda(of, type);
        EXPECT_EQ(skipped, run_cpu(of, type, type)) << count << " elements in " << to_string(type);
        EXPECT_NE(skipped, right);
      }
    }
  }
}

// Steps whose constants differ, up to where the corrections are 1.
TEST_F(CudaOptimizer, AdamWHasTheCpusBitsAtAnyStep) {
  for (const std::uint64_t step : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{100000}}) {
    KernelCase of = adamw(257, DataType::bf16);
    of.step.step = step;
    of.step.learning_rate = 3.7e-4;
    EXPECT_EQ(run_cuda(of, DataType::bf16), run_cpu(of, DataType::bf16, DataType::bf16));
  }
}

// And changes nothing where the norm says that gradients overflowed.
TEST_F(CudaOptimizer, AdamWHasTheCpusBitsWithALossScale) {
  for (const DataType type : {DataType::f32, DataType::f16}) {
    KernelCase of = adamw(257, type);
    const std::vector<Output> unscaled = run_cuda(of, type);
    of.step.loss_scale = 1024;
    of.step.skipped_steps = 2;
    const std::vector<Output> scaled = run_cuda(of, type);
    EXPECT_EQ(scaled, run_cpu(of, type, type));
    EXPECT_NE(scaled, unscaled);
    of.reads[4].values = {INFINITY, 0};
    const std::vector<Output> skipped = run_cuda(of, type);
    const std::vector<double> weights = widened(skipped[0], type),
                              moments = widened(skipped[1], DataType::f32);
    EXPECT_EQ(weights, of.reads[0].values);
    EXPECT_EQ(moments, of.reads[2].values);
  }
}

TEST_F(CudaOptimizer, SumsSquaresInF64) {
  for (const std::int64_t count : {1, 3, 8, 8193, 30000}) {
    expect_right({"square_sum", {}, {{Role::work, {count}, draws(count, 1)}}, {{Role::f64, {}, {}, 1e-14}}});
    expect_right({"square_sum", {}, {{Role::work, {count}, draws(count, 1)}}, {{Role::f64, {}, {}, 1e-14}}},
                 1);
  }
}

// As the CPU, and with the bits of a launch for each array; more arrays than one launch takes.
TEST_F(CudaOptimizer, SumsSquaresOfSeveralArrays) {
  for (const DataType type : {DataType::f32, DataType::bf16, DataType::f16}) {
    KernelCase all{"square_sums", {}, {}, {}};
    std::vector<Output> apart;
    for (unsigned i = 0; i < 70; ++i) {
      const std::int64_t count = i == 3 ? 30000 : i == 66 ? 8193 : 1 + 5 * i;
      const TestOperand x{Role::work, {count}, draws(count, i + 1)};
      const TestOperand sum{Role::f64, {}, {}, 1e-14};
      all.reads.push_back(x);
      all.writes.push_back(sum);
      apart.push_back(run_cuda({"square_sum", {}, {x}, {sum}}, type)[0]);
    }
    EXPECT_EQ(run_cuda(all, type), apart) << to_string(type);
    EXPECT_EQ(run_cuda(all, type, 1), apart) << to_string(type) << ", unaligned";
    expect_right(all);
  }
}

// Positive, and so far apart that few orders of additions have the same bits.
std::vector<double> spread_draws(std::int64_t count, unsigned seed) {
  std::vector<double> values = draws(count, seed);
  for (double& value : values) value = std::exp(9 * value);
  return values;
}

// The first `counted` elements in pieces, NaN behind them. A sum is off by a rounding for each addition.
KernelCase square_pieces(std::vector<double> values, std::int64_t pieces, std::int64_t piece,
                         std::int64_t counted) {
  std::fill(values.begin() + counted, values.end(), NAN);
  const auto elements = static_cast<std::int64_t>(values.size());
  return {"square_sum",
          {{"pieces", pieces}, {"piece", piece}, {"count", counted}},
          {{Role::work, {elements}, std::move(values)}},
          {{Role::f64, {pieces}, {}, static_cast<double>(piece) * 0x1p-52}}};
}

// As the CPU, and with the bits that a rank has which holds some of the pieces alone, at another address.
TEST_F(CudaOptimizer, SumsSquaresOfPieces) {
  constexpr std::int64_t pieces = 4;
  for (const std::int64_t piece : {1, 3, 8, 20000, 20001}) {
    for (const std::int64_t counted : {std::int64_t{0}, 2 * piece, 3 * piece - 1}) {
      const std::vector<double> x = spread_draws(pieces * piece, 1);
      const KernelCase whole = square_pieces(x, pieces, piece, counted);
      expect_right(whole, 1);
      for (const DataType type : {DataType::f32, DataType::bf16, DataType::f16}) {
        Output parts;
        for (const std::int64_t first : {0, 1, 3}) {
          const std::int64_t last = first == 1 ? 3 : first + 1;
          const std::vector<double> own(x.begin() + first * piece, x.begin() + last * piece);
          const std::int64_t left =
              std::clamp(counted - first * piece, std::int64_t{0}, (last - first) * piece);
          const Output part = run_cuda(square_pieces(own, last - first, piece, left), type, first)[0];
          parts.insert(parts.end(), part.begin(), part.end());
        }
        EXPECT_EQ(run_cuda(whole, type)[0], parts) << piece << " elements each, " << counted << " count";
      }
    }
  }
}

std::vector<TestOperand> sums_of_pieces(unsigned sums, std::int64_t pieces, unsigned seed) {
  std::vector<TestOperand> all;
  for (unsigned i = 0; i < sums; ++i)
    all.push_back({Role::f64, {pieces}, spread_draws(pieces, seed * sums + i)});
  return all;
}

KernelCase clip_of_pieces(std::int64_t pieces, std::vector<TestOperand> sums) {
  return {"clip", {{"clip", 0.5}, {"pieces", pieces}}, std::move(sums), {{Role::f64, {2}, {}}}};
}

TEST_F(CudaOptimizer, ClipsPiecesLikeTheCpu) {
  for (const auto& [sums, pieces] :
       {std::pair{1U, 1}, {1U, 1024}, {5U, 2}, {5U, 1024}, {257U, 1}, {257U, 16}}) {
    for (unsigned seed = 0; seed < 5; ++seed) {
      KernelCase of = clip_of_pieces(pieces, sums_of_pieces(sums, pieces, seed));
      of.step.loss_scale = 4;
      EXPECT_EQ(run_cuda(of, DataType::f32), run_cpu(of, DataType::f64, DataType::f64))
          << sums << " sums of " << pieces;
    }
  }
}

// norm_part of a rank's pieces.
KernelCase part_of_rank(std::int64_t rank, std::int64_t pieces, std::vector<TestOperand> sums) {
  for (TestOperand& sum : sums) {
    const double* const first = sum.values.data() + rank * pieces;
    sum = {Role::f64, {pieces}, {first, first + pieces}};
  }
  return {"norm_part", {{"pieces", pieces}}, std::move(sums), {{Role::f64, {}, {}}}};
}

TEST_F(CudaOptimizer, AddsPiecesLikeTheCpu) {
  for (const std::int64_t pieces : {2, 16}) {
    for (const int sums : {1, 5, 300}) {
      KernelCase of = part_of_rank(0, pieces, sums_of_pieces(sums, pieces, 3));
      of.writes.front().shape = {pieces};
      EXPECT_EQ(run_cuda(of, DataType::f32), run_cpu(of, DataType::f32, DataType::f32)) << sums << " sums";
    }
  }
}

TEST_F(CudaOptimizer, ClipOfTheRanksPartsIsThatOfOneRank) {
  for (std::int64_t pieces = 1; pieces <= 16; pieces *= 2) {
    for (std::int64_t ranks = 1; ranks <= pieces; ranks *= 2) {
      for (unsigned seed = 0; seed < 3; ++seed) {
        const std::vector<TestOperand> sums = sums_of_pieces(5, pieces, seed);
        TestOperand parts{Role::f64, {ranks}, {}};
        for (std::int64_t rank = 0; rank < ranks; ++rank) {
          const KernelCase part = part_of_rank(rank, pieces / ranks, sums);
          const std::vector<Output> found = run_cuda(part, DataType::f32);
          EXPECT_EQ(found, run_cpu(part, DataType::f32, DataType::f32));
          parts.values.push_back(widened(found[0], DataType::f64)[0]);
        }
        const KernelCase whole = clip_of_pieces(pieces, sums), of_ranks = clip_of_pieces(ranks, {parts});
        const std::vector<Output> right = run_cpu(whole, DataType::f32, DataType::f32);
        EXPECT_EQ(run_cuda(of_ranks, DataType::f32), right) << pieces << " pieces, " << ranks << " ranks";
        EXPECT_EQ(run_cpu(of_ranks, DataType::f32, DataType::f32), right)
            << pieces << " pieces, " << ranks << " ranks";
      }
    }
  }
}

TEST_F(CudaOptimizer, ClipsLikeTheCpu) {
  for (const std::size_t sums : {1U, 2U, 256U, 257U, 700U}) {
    for (const double limit : {0.0, 0.5, 1e9}) {
      KernelCase of{"clip", {{"clip", limit}}, {}, {{Role::f64, {2}, {}}}};
      for (const double value : draws(static_cast<std::int64_t>(sums), 6))
        of.reads.push_back(scalar(std::abs(value)));
      EXPECT_EQ(run_cuda(of, DataType::f32), run_cpu(of, DataType::f64, DataType::f64)) << sums << " sums";
      of.step.loss_scale = 4;
      EXPECT_EQ(run_cuda(of, DataType::f32), run_cpu(of, DataType::f64, DataType::f64)) << sums << " sums";
    }
  }
}

}  // namespace
}  // namespace stowage::test
