#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/safetensors.h"
#include "tests/support/expect_refused.h"

namespace stowage {
namespace {

using Files = std::map<std::string, std::string>;

Files parsed(const std::string& text) { return parse_safetensors_index(text, "i.json"); }
Files of_file(const std::string& file) { return parsed(R"({"weight_map":{"a":")" + file + "\"}}"); }

TEST(SafetensorsIndex, ReadsWhatItWrites) {
  const Files files = {{"a", "model-00001-of-00002.safetensors"},
                       {"b\"", "model-00002-of-00002.safetensors"}};
  EXPECT_EQ(parsed(safetensors_index(files, 12)), files);
  EXPECT_THAT(safetensors_index(files, 12), ::testing::HasSubstr("\"total_size\": 12"));
  EXPECT_EQ(parsed(R"({"metadata":{"total_size":1.0},"more":[],"weight_map":{"a":"x.safetensors"}})").size(),
            1U);
}

TEST(SafetensorsIndex, RefusesFilesOutsideOfItsFolder) {
  for (const char* file : {"../x.safetensors", "/x.safetensors", "a/x.safetensors", "..", ".", "", "x",
                           "x.bin", ".hidden.safetensors", R"(a\\x.safetensors)", R"(x\u0000.safetensors)"})
    test::expect_refused([&] { of_file(file); }, "i.json: weight_map: \"a\"");
  test::expect_refused([] { of_file(std::string(300, 'x') + ".safetensors"); }, "weight_map");
}

TEST(SafetensorsIndex, RefusesWhatIsNoIndex) {
  for (const char* text : {"", "[]", "1", "{}", R"({"weight_map":[]})", R"({"weight_map":{}})",
                           R"({"weight_map":{"a":1}})", R"({"weight_map":{"a":{"b":"x.safetensors"}}})"})
    test::expect_refused([&] { parsed(text); }, "i.json: ");
  test::expect_refused([] { parsed(R"({"weight_map":{"a":"x.safetensors","a":"x.safetensors"}})"); },
                       "twice");
  test::expect_refused([] { parsed(std::string(100'000, '[')); }, "i.json: ");
}

}  // namespace
}  // namespace stowage
