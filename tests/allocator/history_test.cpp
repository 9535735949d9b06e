#include "allocator/history.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace stowage::caching {
namespace {

TEST(History, KeepsTheLastEvents) {
  History history(3);
  for (std::uint64_t i = 0; i < 5; ++i) history.add({EventKind::allocate, 4096, 100 + i, 2, 1});
  const auto json = nlohmann::json::parse(history.json());
  EXPECT_EQ(json["dropped"], 2);
  ASSERT_EQ(json["events"].size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(json["events"][i]["number"], i + 2);
    EXPECT_EQ(json["events"][i]["bytes"], 102 + i);
  }
  EXPECT_EQ(json["events"][0]["stream"], 2);
  EXPECT_EQ(json["events"][0]["pool"], 1);
  const std::string text = history.text();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
  EXPECT_NE(text.find("0x1000"), std::string::npos);
}

TEST(History, WithoutEntriesKeepsNothing) {
  History history(0);
  history.add({});
  EXPECT_FALSE(history.is_on());
  EXPECT_EQ(nlohmann::json::parse(history.json())["events"].size(), 0u);
}

TEST(History, NamesEveryKind) {
  for (const EventKind kind : {EventKind::allocate, EventKind::release, EventKind::wait, EventKind::map,
                               EventKind::unmap, EventKind::synchronise, EventKind::out_of_memory})
    EXPECT_NE(to_string(kind), "unknown");
}

}  // namespace
}  // namespace stowage::caching
