#include "tools/cli/place_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "stowage/error.h"
#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"
#include "tools/cli/buffers_csv.h"

namespace stowage {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class PlaceCommandTest : public ::testing::Test {
 protected:
  PlaceCommandTest() {
    command_.file =
        folder_.make("x.csv", "id,lower,upper,size\na,0,2,512\nb,0,4,256\nc,2,4,256\nd,2,4,256\n");
  }
  int run() {
    output_.clear();
    return run_place_command(command_, output_);
  }
  void expect_refused(const std::string& words) {
    const std::size_t entries = folder_.entries();
    test::expect_refused([&] { run(); }, words);
    EXPECT_EQ(output_, "");
    EXPECT_EQ(folder_.entries(), entries);
  }
  TemporaryFolder folder_;
  PlaceCommand command_;
  std::string output_;
};

TEST_F(PlaceCommandTest, AnswersInLines) {
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(output_,
              MatchesRegex("buffers +4\nlower_bound +768\npeak +768\nseconds +[0-9.]+\nfits +true\n"));
}

TEST_F(PlaceCommandTest, AnswersAsJson) {
  command_.json = true;
  EXPECT_EQ(run(), 0);
  const auto json = nlohmann::json::parse(output_);
  EXPECT_EQ(json.size(), 6U);
  EXPECT_EQ(json["buffers"], 4);
  EXPECT_EQ(json["lower_bound"], 768);
  EXPECT_EQ(json["peak"], 768);
  EXPECT_GE(json["seconds"], 0);
  EXPECT_EQ(json["fits"], true);
  EXPECT_EQ(json["optimal"], true);
}

TEST_F(PlaceCommandTest, WritesOffsetsThatAreSound) {
  command_.output_file = folder_.file("out.csv");
  command_.alignment = 64;
  EXPECT_EQ(run(), 0);
  const std::string text = contents_of(command_.output_file);
  EXPECT_EQ(text.find("id,lower,upper,size,offset\na,0,2,512,"), 0U);
  const Buffers buffers = parse_buffers(text, "out.csv");
  PlacementResult result{{}, 768, 768, 768};
  for (std::size_t line = text.find('\n') + 1; line < text.size(); line = text.find('\n', line) + 1) {
    result.offsets.push_back(std::stoull(text.substr(text.rfind(',', text.find('\n', line)) + 1)));
  }
  EXPECT_EQ(check_placement(buffers.items, result, 64), "");
}

TEST_F(PlaceCommandTest, SaysWhetherTheCapacityIsEnough) {
  command_.output_file = folder_.file("out.csv");
  command_.capacity = 767;
  EXPECT_EQ(run(), 2);
  EXPECT_THAT(output_, HasSubstr("fits          false\n"));
  EXPECT_THAT(output_, HasSubstr("peak          768\n"));
  EXPECT_EQ(folder_.entries(), 1U);
  command_.capacity = 768;
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(output_, HasSubstr("fits          true\n"));
  EXPECT_EQ(folder_.entries(), 2U);
  command_.alignment = 512;
  EXPECT_EQ(run(), 2);
  command_.capacity.reset();
  command_.json = true;
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(nlohmann::json::parse(output_)["fits"], true);
  EXPECT_EQ(nlohmann::json::parse(output_)["peak"], 1280);
}

TEST_F(PlaceCommandTest, WithoutTimeDoesNotSearch) {
  // Needs a search, which would tell of its progress if it took long.
  std::string text = "id,lower,upper,size\n";
  std::uint64_t state = 1;
  for (int i = 0; i < 200; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const std::uint64_t first = state >> 33U;
    text += std::to_string(i) + ',' + std::to_string(first % 100) + ',' + std::to_string(101 + first % 50) +
            ',' + std::to_string(1 + (state >> 50U) % 1000) + '\n';
  }
  command_.file = folder_.make("y.csv", text);
  command_.seconds = 0;
  command_.progress = [](const std::string&) { throw std::logic_error("searched"); };
  EXPECT_EQ(run(), 0);
  command_.json = true;
  EXPECT_EQ(run(), 0);
  const Buffers buffers = parse_buffers(text, "y.csv");
  EXPECT_EQ(nlohmann::json::parse(output_)["peak"], place(buffers.items, 1).peak);
}

TEST_F(PlaceCommandTest, NamesWhatIsWrong) {
  const std::string file = command_.file;
  command_.file = folder_.file("none.csv");
  expect_refused("none.csv");
  command_.file = folder_.make("bad.csv", "id,lower,upper,size\na,2,1,5\n");
  expect_refused("bad.csv', line 2: lower 2 is not before upper 1");
  command_.file = folder_.make("large.csv", std::string((64U << 20U) + 1, 'x'));
  expect_refused("large.csv' has 67108865 bytes");
  command_.file = file;
  command_.output_file = folder_.file("none/out.csv");
  expect_refused("none/out.csv");
  command_.output_file.clear();
  command_.capacity = 0;
  expect_refused("--capacity: nothing fits in 0 bytes");
  command_.capacity.reset();
  for (const double seconds : {-1.0, 1e7, std::numeric_limits<double>::quiet_NaN()}) {
    command_.seconds = seconds;
    expect_refused("--time: ");
  }
  command_.seconds = 1;
  for (const Bytes alignment : {Bytes{0}, Bytes{3}, 2_GiB}) {
    command_.alignment = alignment;
    expect_refused("--alignment: ");
  }
}

}  // namespace
}  // namespace stowage
