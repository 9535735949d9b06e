// Published throughput of Megatron-LM beside the cost models. Skipped without the folder of public data.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/megatron_tables.h"

namespace stowage::testing {
namespace {

const std::string megatron_folder = STOWAGE_TEST_DATA "/parallel/megatron";

class Megatron : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::is_directory(megatron_folder)) GTEST_SKIP() << "no " << megatron_folder;
    first_ = read_megatron_table(megatron_folder + "/table1.csv");
    second_ = read_megatron_table(megatron_folder + "/table2.csv");
    ASSERT_EQ(first_.size(), 10U);
    ASSERT_EQ(second_.size(), 12U);
    ASSERT_EQ(first_[0].name, "1.7B");
    ASSERT_EQ(first_[6].name, "145.6B");
    fitted_ = {first_[0], first_[6]};
    others_ = first_;
    others_.erase(others_.begin() + 6);
    others_.erase(others_.begin());
  }

  std::vector<MegatronRow> first_, second_, fitted_, others_;
};

TEST_F(Megatron, TwoConstantsPriceTheOtherRows) {
  const MegatronConstants constants = fit_megatron(fitted_);
  EXPECT_NEAR(constants.products, 0.642, 0.0005);
  EXPECT_NEAR(constants.memory, 1.133, 0.0005);
  EXPECT_LT(largest_miss(fitted_, constants), 1e-9);
  ASSERT_EQ(others_.size(), 8U);
  EXPECT_LT(largest_miss(others_, constants), 0.08);
  EXPECT_NEAR(largest_miss(others_, constants), 0.063, 0.0005);
  const std::vector<MegatronRow> pipelined = megatron_rows(second_, false);
  ASSERT_EQ(pipelined.size(), 6U);
  EXPECT_LT(largest_miss(pipelined, constants), 0.08);
  EXPECT_NEAR(largest_miss(pipelined, constants), 0.050, 0.0005);
}

TEST_F(Megatron, OtherRatesOfLinksMissByLittleMore) {
  double most_first = 0, most_second = 0;
  for (const double inside : {200e9, 240e9, 300e9}) {
    for (const double between : {12.5e9, 20e9, 25e9}) {
      const MegatronLinks links{inside, between};
      const MegatronConstants constants = fit_megatron(fitted_, links);
      most_first = std::max(most_first, largest_miss(others_, constants, links));
      most_second = std::max(most_second, largest_miss(megatron_rows(second_, false), constants, links));
    }
  }
  EXPECT_LT(most_first, 0.08);
  EXPECT_LT(most_second, 0.08);
  EXPECT_NEAR(most_first, 0.0786, 0.0001);
  EXPECT_NEAR(most_second, 0.0622, 0.0001);
}

// The formula as one expression, apart from the cost models.
TEST_F(Megatron, FormulaIsTheOneOfTheData) {
  const MegatronRow& row = first_[5];  // interleaved
  const double h = 10240, L = 60, a = 80, t = 8, p = 4, b = 2, s = 2048, V = 51200, v = 3, d = 32, B = 1792;
  const double pi = 0.6, mu = 1.1;
  const double products = 24 * b * s * h * h * (1 + s / (6 * h)) / (t * pi * 312e12);
  const double rest = (16 * b * s * h + (18 * b * s * h + 10 * a * s * s * b) / t) / (mu * 2039e9);
  const double around = 2 * (2 * (t - 1) / t * 2 * b * s * h / 240e9 + 20e-6);
  const double sends =
      v * (2 * (2 * b * s * h / (20e9 * t) + 20e-6) + 2 * 2 * b * s * h * (t - 1) / (240e9 * t));
  const double stage = L / p * (4 * (products + rest) + 3 * around) + sends;
  const double head = 6 * b * s * h * V / (t * pi * 312e12);
  const double P = 12 * L * h * h / (t * p) + V * h / t;
  const double step = B / (d * b) * (stage + head) + (p - 1) / v * stage + 2 * (d - 1) / d * 2 * P / 20e9 +
                      26 * P / (mu * 2039e9);
  EXPECT_NEAR(megatron_seconds(row, row.way, {pi, mu}) / step, 1, 1e-12);
  const double flops = 96 * B * s * L * h * h * (1 + s / (6 * h) + V / (16 * L * h));
  EXPECT_NEAR(teraflops_of(row, step) * 1e12 * step * row.devices / flops, 1, 1e-12);
}

TEST_F(Megatron, ChoicesFitAndAreNoSlowerThanWhatWasRun) {
  const MegatronConstants constants = fit_megatron(fitted_);
  std::vector<MegatronRow> rows = megatron_rows(second_, false);
  rows.insert(rows.end(), first_.begin(), first_.end());
  for (const MegatronRow& row : rows) {
    const std::optional<MegatronWay> best = best_megatron_way(row, constants, 80e9);
    ASSERT_TRUE(best) << row.name;
    EXPECT_LE(megatron_bytes(row, *best), 80e9) << row.name;
    EXPECT_EQ(best->split * best->stages * parts_of(row, *best), row.devices);
    EXPECT_EQ(best->micro_samples * parts_of(row, *best) * micro_batches_of(row, *best), row.batch);
    EXPECT_LE(megatron_bytes(row, row.way), 80e9) << row.name << " was run";
    EXPECT_LE(megatron_seconds(row, *best, constants), megatron_seconds(row, row.way, constants));
  }
}

}  // namespace
}  // namespace stowage::testing
