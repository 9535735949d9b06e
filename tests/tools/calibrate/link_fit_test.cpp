#include "tools/calibrate/fit.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/expect_refused.h"

namespace stowage {
namespace {

std::vector<CopySample> copies_over(const Link& link, Bytes smallest, Bytes largest) {
  std::vector<CopySample> samples;
  for (Bytes bytes = smallest; bytes <= largest; bytes *= 2) samples.push_back({bytes, link.seconds(bytes)});
  return samples;
}

TEST(LinkFit, FindsTheLinkThatCopiesFollow) {
  for (const Link& link : {Link{55e9, 9e-6, true}, Link{1e9, 0, true}, Link{2e12, 1e-7, true}}) {
    const Link fit = fit_link(copies_over(link, 4_KiB, 64_MiB));
    EXPECT_NEAR(fit.bytes_per_second / link.bytes_per_second, 1, 1e-9);
    EXPECT_NEAR(fit.latency_seconds, link.latency_seconds, 1e-12);
    EXPECT_TRUE(fit.throttled);
  }
}

TEST(LinkFit, LongCopiesDecideThePeakAndShortOnesTheLatency) {
  // Some microseconds of noise on short copies, one percent on long ones.
  const Link link{20e9, 10e-6, true};
  std::vector<CopySample> samples = copies_over(link, 4_KiB, 64_MiB);
  for (std::size_t i = 0; i < 5; ++i) samples[i].seconds += 4e-6;
  Link fit = fit_link(samples);
  EXPECT_NEAR(fit.bytes_per_second / link.bytes_per_second, 1, 0.005);
  EXPECT_GT(fit.latency_seconds, 11e-6);
  EXPECT_LT(fit.latency_seconds, 14e-6);
  samples = copies_over(link, 4_KiB, 64_MiB);
  samples.back().seconds *= 1.01;
  fit = fit_link(samples);
  EXPECT_NEAR(fit.bytes_per_second / link.bytes_per_second, 1, 0.01);
  EXPECT_NEAR(fit.latency_seconds / link.latency_seconds, 1, 0.1);
}

TEST(LinkFit, LatencyIsNeverNegative) {
  // Longer copies are slower per byte than short ones.
  const Link fit = fit_link(std::vector<CopySample>{{1000, 1e-6}, {1'000'000, 2e-3}});
  EXPECT_EQ(fit.latency_seconds, 0);
  EXPECT_GT(fit.bytes_per_second, 1'000'000 / 2e-3);
  EXPECT_LT(fit.bytes_per_second, 1000 / 1e-6);
}

TEST(LinkFit, ThePeakIsFiniteWhenLongerCopiesTakeNoLonger) {
  const Link fit = fit_link(std::vector<CopySample>{{1000, 2e-6}, {2000, 1e-6}});
  EXPECT_GT(fit.bytes_per_second, 0);
  EXPECT_LE(fit.bytes_per_second, 2000 / 1e-6);
}

TEST(LinkFit, RefusesWhatNoLineGoesThrough) {
  const std::string words = "two sizes";
  test::expect_refused([] { fit_link({}); }, words);
  test::expect_refused([] { fit_link(std::vector<CopySample>{{4096, 1e-5}, {4096, 2e-5}}); }, words);
  test::expect_refused([] { fit_link(std::vector<CopySample>{{4096, 1e-5}, {8192, 0}}); }, words);
}

}  // namespace
}  // namespace stowage
