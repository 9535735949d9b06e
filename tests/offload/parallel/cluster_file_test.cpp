#include "offload/parallel/cluster_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/error.h"

namespace stowage {
namespace {

using ::testing::HasSubstr;

const char* const whole = R"({"format": "stowage.cluster", "version": 1, "nodes": 4, "machine": "8x-h200",
  "devices_per_node": 8, "network": {"device_bytes_per_second": 25e9, "node_bytes_per_second": 200e9,
  "latency_seconds": 5e-6, "path": "link"}, "watts_per_device": 700, "watts_per_node": 2400})";

std::string message_of(const std::string& text) {
  try {
    cluster_from_json(text);
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "";
}

std::string with(const std::string& from, const std::string& to) {
  std::string text = whole;
  return text.replace(text.find(from), from.size(), to);
}

TEST(ClusterFile, ReadsWhatItWrites) {
  const ClusterFile file = cluster_from_json(whole);
  EXPECT_EQ(file.nodes, 4);
  EXPECT_EQ(file.machine, "8x-h200");
  EXPECT_EQ(file.devices_per_node, 8);
  EXPECT_EQ(file.network.device_bytes_per_second, 25e9);
  EXPECT_EQ(file.network.node_bytes_per_second, 200e9);
  EXPECT_EQ(file.network.latency_seconds, 5e-6);
  EXPECT_EQ(file.network.path, PeerPath::link);
  EXPECT_EQ(file.watts_per_device, 700);
  EXPECT_EQ(file.watts_per_node, 2400);
  EXPECT_EQ(to_json(cluster_from_json(to_json(file))), to_json(file));
}

TEST(ClusterFile, NeedsNoNetworkForOneNode) {
  const ClusterFile file = cluster_from_json(
      R"({"format": "stowage.cluster", "version": 1, "nodes": 1, "machine": "4x-rtx4090"})");
  EXPECT_EQ(file.nodes, 1);
  EXPECT_FALSE(file.devices_per_node);
  EXPECT_EQ(file.watts_per_device, 0);
}

TEST(ClusterFile, NamesTheFieldThatIsWrong) {
  EXPECT_THAT(message_of(with("\"nodes\": 4", "\"nodes\": 0")), HasSubstr("'nodes'"));
  EXPECT_THAT(message_of(with("\"nodes\": 4", "\"nodes\": 4097")), HasSubstr("'nodes'"));
  EXPECT_THAT(message_of(with("\"8x-h200\"", "\"\"")), HasSubstr("'machine'"));
  EXPECT_THAT(message_of(with("\"devices_per_node\": 8", "\"devices_per_node\": 0")),
              HasSubstr("'devices_per_node'"));
  EXPECT_THAT(message_of(with("25e9", "0")), HasSubstr("'network.device_bytes_per_second'"));
  EXPECT_THAT(message_of(with("25e9", "-1")), HasSubstr("'network.device_bytes_per_second'"));
  EXPECT_THAT(message_of(with("200e9", "\"much\"")), HasSubstr("'network.node_bytes_per_second'"));
  EXPECT_THAT(message_of(with("5e-6", "2")), HasSubstr("'network.latency_seconds'"));
  EXPECT_THAT(message_of(with("\"link\"", "\"tunnel\"")), HasSubstr("'network.path'"));
  EXPECT_THAT(message_of(with("700", "1e300")), HasSubstr("'watts_per_device'"));
  EXPECT_THAT(message_of(with("stowage.cluster", "stowage.machine")), HasSubstr("'format'"));
  EXPECT_THAT(message_of(with("\"version\": 1", "\"version\": 2")), HasSubstr("'version'"));
  EXPECT_THAT(message_of(with("\"nodes\"", "\"knots\"")), HasSubstr("knots"));
  EXPECT_THAT(message_of(R"({"format": "stowage.cluster", "version": 1, "nodes": 2, "machine": "8x-h200"})"),
              HasSubstr("network"));
  for (const char* text : {"", "[]", "{}", "7", "{\"format\": 1}"}) EXPECT_NE(message_of(text), "") << text;
}

}  // namespace
}  // namespace stowage
