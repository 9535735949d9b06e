#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "stowage/machine_file.h"
#include "tests/machine/sample_file.h"
#include "tests/support/expect_refused.h"

namespace stowage {
namespace {

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const std::size_t at = text.find(what);
  if (at == std::string::npos) throw InvalidInput("no '" + what + "' in the text; correct the test");
  return text.replace(at, what.size(), with);
}

void expect_refused(const std::string& text, const std::string& words) {
  test::expect_refused([&] { machine_from_json(text); }, words);
}

TEST(MachineJson, ReadsBackToTheBit) {
  const MachineFile file = test::sample_file();
  const MachineFile back = machine_from_json(to_json(file));
  EXPECT_EQ(back.device, file.device);
  EXPECT_EQ(back.backend, file.backend);
  EXPECT_EQ(back.host, file.host);
  EXPECT_EQ(back.processor, file.processor);
  EXPECT_EQ(back.measured, file.measured);
  EXPECT_EQ(back.note, file.note);
  EXPECT_EQ(back.device_bytes, file.device_bytes);
  EXPECT_EQ(back.overhead_bytes, file.overhead_bytes);
  EXPECT_EQ(back.h2d.fit.latency_seconds, file.h2d.fit.latency_seconds);
  ASSERT_EQ(back.h2d.samples.size(), 2U);
  EXPECT_EQ(back.h2d.samples[1].bytes, 1_MiB);
  EXPECT_EQ(back.h2d.samples[1].seconds, 3.0e-5);
  EXPECT_EQ(back.d2h.fit.bytes_per_second, 52e9);
  EXPECT_EQ(back.h2d_both.fit.bytes_per_second, 45e9);
  EXPECT_EQ(back.d2h_both.fit.bytes_per_second, 44e9);
  ASSERT_EQ(back.matrix.size(), 2U);
  EXPECT_EQ(back.matrix[1].type, DataType::bf16);
  EXPECT_EQ(back.matrix[1].flops_per_second, 700e12);
  ASSERT_EQ(back.matrix[0].samples.size(), 1U);
  EXPECT_EQ(back.matrix[0].samples[0].rows, 512);
  EXPECT_EQ(back.matrix[0].samples[0].inner, 512);
  EXPECT_EQ(back.matrix[0].samples[0].columns, 1536);
  EXPECT_EQ(back.matrix[0].samples[0].seconds, 2e-5);
  ASSERT_EQ(back.codec.size(), 3U);
  EXPECT_EQ(back.codec[0].type, DataType::f32);
  EXPECT_EQ(back.codec[0].bits, CodeBits::eight);
  EXPECT_EQ(back.codec[1].type, DataType::bf16);
  EXPECT_EQ(back.codec[1].bits, CodeBits::four);
  EXPECT_EQ(back.codec[1].rates.encode_bytes_per_second, 1.25e12);
  EXPECT_EQ(back.codec[1].rates.decode_bytes_per_second, 3.25e12);
  EXPECT_EQ(back.device_bytes_per_second, 3.9e12);
  EXPECT_EQ(back.launch_seconds, 2.5e-6);
  ASSERT_EQ(back.host_rates.size(), 3U);
  EXPECT_EQ(back.host_rates[1].threads, 16);
  EXPECT_EQ(back.host_rates[1].bytes_per_second, 150e9);
  EXPECT_EQ(back.host_total_bytes_per_second, 210e9);
  EXPECT_EQ(back.host_memory_bytes, 64_GiB);
  ASSERT_EQ(back.ops.size(), 2U);
  EXPECT_EQ(back.ops[0].kernel, "linear");
  EXPECT_EQ(back.ops[0].type, DataType::bf16);
  EXPECT_EQ(back.ops[0].flops, 1e9);
  EXPECT_EQ(back.ops[0].bytes, 3e6);
  EXPECT_EQ(back.ops[0].seconds, 2e-5);
  EXPECT_EQ(back.compute_beside_copy, 0.75);
  EXPECT_EQ(back.compute_beside_host, 0.5);
  EXPECT_EQ(back.host_beside_compute, 0.25);
  ASSERT_TRUE(back.peers);
  EXPECT_EQ(back.peers->devices, 8);
  EXPECT_EQ(back.peers->devices_per_host_memory, 4);
  EXPECT_EQ(back.peers->link.bytes_per_second, 400e9);
  EXPECT_EQ(back.peers->link.latency_seconds, 2e-5);
  EXPECT_EQ(back.peers->path, PeerPath::apart);
  EXPECT_EQ(to_json(back), to_json(file));
}

TEST(MachineJson, AFileOfBeforeHasNoPeers) {
  MachineFile file = test::sample_file();
  file.peers.reset();
  const std::string text = to_json(file);
  EXPECT_EQ(text.find("peers"), std::string::npos);
  EXPECT_FALSE(machine_from_json(text).peers);
  EXPECT_EQ(to_json(machine_from_json(text)), text);
}

TEST(MachineJson, HasWhatWasMeasuredOfPeers) {
  MachineFile file = test::sample_file();
  EXPECT_EQ(to_json(file).find("links_together"), std::string::npos);
  file.peers->gathers = {{1024, 1e-5}, {2048, 2e-5}};
  file.peers->exchanges = {{1024, 3e-5}};
  file.peers->together = LinkRates{4.5e9, 3.5e9, 2.5e9, 1.5e9};
  const std::string text = to_json(file);
  const MachineFile back = machine_from_json(text);
  EXPECT_EQ(to_json(back), text);
  ASSERT_TRUE(back.peers && back.peers->together);
  EXPECT_EQ(back.peers->gathers[1].bytes, 2048U);
  EXPECT_EQ(back.peers->exchanges[0].seconds, 3e-5);
  EXPECT_EQ(back.peers->together->h2d, 4.5e9);
  EXPECT_EQ(back.peers->together->d2h_both, 1.5e9);
  expect_refused(replaced(text, "4500000000.0", "0"), "'peers.links_together.h2d' is outside");
  expect_refused(replaced(text, "\"links_together\": {", "\"links_together\": {\"x\": 0,"),
                 "'peers.links_together' has a field that is not known");
  expect_refused(replaced(text, "\"seconds\": 1e-05", "\"seconds\": -1"),
                 "'peers.gathers[0].seconds' is outside");
}

TEST(MachineJson, SaysWherePeersTakeTheLinkToTheHost) {
  MachineFile file = test::sample_file();
  file.peers->path = PeerPath::link;
  const std::string text = to_json(file);
  EXPECT_EQ(machine_from_json(text).peers->path, PeerPath::link);
  EXPECT_EQ(to_json(machine_from_json(text)), text);
  const char* const words = "'peers.over_link' is to be true";
  expect_refused(replaced(text, "\"over_link\": true", "\"over_link\": false"), words);
  expect_refused(replaced(text, "\"through_host\": false", "\"through_host\": true"), words);
  expect_refused(replaced(text, "\"over_link\": true", "\"over_link\": 1"), "is neither true nor false");
}

TEST(MachineJson, NamesTheFieldOfPeersThatDoesNotFit) {
  MachineFile file = test::sample_file();
  file.peers = PeerDevices{64, 3, {411e9, 2.125e-5, true}, PeerPath::host_memory};
  const std::string text = to_json(file);
  EXPECT_EQ(machine_from_json(text).peers->path, PeerPath::host_memory);
  EXPECT_EQ(to_json(machine_from_json(text)), text);
  const auto refused = [&](const char* what, const char* with, const char* words) {
    expect_refused(replaced(text, what, with), words);
  };
  refused("\"devices\": 64", "\"devices\": 65", "'peers.devices' is outside 1 to 64");
  refused("\"devices\": 64", "\"devices\": 0", "'peers.devices' is outside 1 to 64");
  refused("\"devices\": 64", "\"devices\": 2", "'peers.devices_per_host_memory' is outside 1 to 2");
  refused("_memory\": 3", "_memory\": 0", "'peers.devices_per_host_memory' is outside 1 to 64");
  refused("_memory\": 3", "_memory\": 1.5", "'peers.devices_per_host_memory' is no whole number");
  refused("411000000000.0", "0", "'peers.bytes_per_second' is outside");
  refused("2.125e-05", "-1", "'peers.latency_seconds' is outside");
  refused("\"through_host\": true", "\"through_host\": 1", "'peers.through_host' is neither true nor false");
  refused("\"through_host\": true", "\"x\": true", "'peers.through_host' is not there");
  refused("\"through_host\"", "\"x\": 0, \"through_host\"", "'peers' has a field that is not known");
  refused("\"peers\": {", "\"peers\": 0, \"x\": {", "'text' has a field");
  file.peers->devices = -1;
  test::expect_refused([&] { to_json(file); }, "'peers.devices' is no whole number");
}

TEST(MachineJson, AFileOfBeforeHasNoMeasuredSteps) {
  MachineFile file = test::sample_file();
  file.ops.clear();
  file.compute_beside_copy = file.compute_beside_host = file.host_beside_compute = 1;
  const std::string text = to_json(file);
  for (const char* name : {"\"ops\"", "_beside_"}) EXPECT_EQ(text.find(name), std::string::npos);
  EXPECT_TRUE(machine_from_json(text).ops.empty());
  EXPECT_EQ(machine_from_json(text).compute_beside_host, 1);
  expect_refused(replaced(text, "\"version\"", "\"ops\": 0, \"version\""), "'ops' is no list");
  for (const char* share : {"0", "1.5", "\"\""})
    expect_refused(
        replaced(text, "\"version\"", "\"compute_beside_copy\": " + std::string(share) + ", \"version\""),
        "'compute_beside_copy' is");
  expect_refused(
      replaced(
          text, "\"version\"",
          R"("ops": [{"kernel": "add", "type": "f32", "flops": -1, "bytes": 0, "seconds": 0}], "version")"),
      "'ops[0].flops' is outside");
}

TEST(MachineJson, AFileOfBeforeHasNoCodec) {
  MachineFile file = test::sample_file();
  file.codec.clear();
  const std::string text = to_json(file);
  EXPECT_EQ(text.find("codec"), std::string::npos);
  EXPECT_TRUE(machine_from_json(text).codec.empty());
  EXPECT_EQ(to_json(machine_from_json(text)), text);
  expect_refused(replaced(text, "\"version\"", "\"codec\": 0, \"version\""), "'codec' is no list");
}

TEST(MachineJson, NamesTheFieldOfTheCodecThatDoesNotFit) {
  const std::string text = to_json(test::sample_file());
  const auto refused = [&](const char* what, const char* with, const char* words) {
    expect_refused(replaced(text, what, with), words);
  };
  refused("\"bits\": 4", "\"bits\": 5", "'codec[1].bits' is neither 4 nor 8");
  refused("\"bits\": 4", "\"bits\": 16", "'codec[1].bits' is outside 4 to 8");
  refused("\"bits\": 4", "\"bits\": \"4\"", "'codec[1].bits' is no whole number");
  refused("\"bits\": 4", "\"bits\": 8", "'codec' has bf16 with 8 bits twice");
  refused("\"type\": \"bf16\"", "\"type\": \"f64\"", "'codec[1].type' is f64, which has no codes");
  refused("\"type\": \"bf16\"", "\"type\": \"u8\"", "'codec[1].type' is no work type");
  refused("1250000000000.0", "0", "'codec[1].encode_bytes_per_second' is outside 1 to 1e+16");
  refused("3250000000000.0", "2e16", "'codec[1].decode_bytes_per_second' is outside 1 to 1e+16");
  refused("\"bits\": 4", "\"x\": 4", "'codec[1].bits' is not there");
  refused("\"bits\": 4", "\"x\": 0, \"bits\": 4", "'codec[1]' has a field that is not known");
  refused("\"codec\": [", "\"codec\": [0, 0, 0, 0,", "'codec' has more than 6 items");
}

TEST(MachineJson, AFileOfBeforeHasNoTotalOfHostMemory) {
  MachineFile file = test::sample_file();
  file.host_total_bytes_per_second = 0;
  const std::string text = to_json(file);
  EXPECT_EQ(text.find("host_total"), std::string::npos);
  EXPECT_EQ(machine_from_json(text).host_total_bytes_per_second, 0);
  expect_refused(replaced(text, "\"version\"", "\"more\": 0, \"version\""), "'text' has a field");
  expect_refused(replaced(text, "\"version\"", "\"host_total_bytes_per_second\": 0, \"version\""),
                 "'host_total_bytes_per_second' is outside");
}

TEST(MachineJson, AFileOfBeforeHasNoHostMemory) {
  MachineFile file = test::sample_file();
  file.host_memory_bytes = 0;
  const std::string text = to_json(file);
  EXPECT_EQ(text.find("host_memory_bytes"), std::string::npos);
  EXPECT_EQ(machine_from_json(text).host_memory_bytes, 0U);
  const auto with = [&](const std::string& bytes) {
    return replaced(text, "\"version\"", "\"host_memory_bytes\": " + bytes + ", \"version\"");
  };
  EXPECT_EQ(machine_from_json(with("1")).host_memory_bytes, 1U);
  EXPECT_EQ(machine_from_json(with("36028797018963968")).host_memory_bytes, Bytes{1} << 55U);
  for (const char* outside : {"0", "36028797018963969", "18446744073709551615"})
    expect_refused(with(outside), "'host_memory_bytes' is outside 1 to 36028797018963968");
  for (const char* other : {"-1", "1.5", "\"64GiB\"", "null", "18446744073709551616"})
    expect_refused(with(other), "'host_memory_bytes' is no whole number");
}

TEST(MachineJson, RefusesToWriteWhatItWouldNotRead) {
  MachineFile file = test::sample_file();
  file.launch_seconds = std::numeric_limits<double>::quiet_NaN();
  test::expect_refused([&] { to_json(file); }, "'launch_seconds' is outside");
  file = test::sample_file();
  file.h2d.fit.bytes_per_second = 0;
  test::expect_refused([&] { to_json(file); }, "'h2d.bytes_per_second' is outside");
  file = test::sample_file();
  file.note = "\xff";
  test::expect_refused([&] { to_json(file); }, "UTF-8");
}

TEST(MachineJson, NamesTheFieldThatDoesNotFit) {
  const std::string text = to_json(test::sample_file());
  expect_refused("", "'text' does not parse");
  expect_refused("[]", "'text' is no object");
  expect_refused("{}", "'format' is not there");
  expect_refused(replaced(text, "stowage.machine", "stowage.plan"), "'format' is not \"stowage.machine\"");
  expect_refused(replaced(text, "\"version\": 1", "\"version\": 2"), "'version' is not 1");
  expect_refused(replaced(text, "\"version\"", "\"more\": 0, \"version\""), "'text' has a field");
  expect_refused(replaced(text, "\"note\": \"full\"", "\"note\": 7"), "'note' is no string");
  expect_refused(replaced(text, "\"note\": \"full\"", "\"note\": \"" + std::string(5000, 'x') + "\""),
                 "'note' is longer than 4096");
  expect_refused(replaced(text, "\"overhead_bytes\": ", "\"overhead_bytes\": -"),
                 "'overhead_bytes' is no whole number");
  expect_refused(replaced(text, "\"device_bytes\": ", "\"device_bytes\": 9999999"),
                 "'device_bytes' is outside 0 to");
  expect_refused(replaced(text, "\"launch_seconds\": 2.5e-06", "\"launch_seconds\": -1e-6"),
                 "'launch_seconds' is outside");
  expect_refused(replaced(text, "\"launch_seconds\": 2.5e-06", "\"launch_seconds\": \"\""),
                 "'launch_seconds' is no number");
  expect_refused(replaced(text, "\"bytes_per_second\": 52000000000.0", "\"bytes_per_second\": 0"),
                 "'d2h.bytes_per_second' is outside");
  expect_refused(replaced(text, "\"bytes\": 4096", "\"bytes\": 0"), "'d2h.samples[0].bytes' is outside");
  expect_refused(replaced(text, "\"type\": \"f32\"", "\"type\": \"i32\""), "'codec[0].type' is no work type");
  expect_refused(replaced(text, "],\n   \"type\": \"bf16\"", "],\n   \"type\": \"i32\""),
                 "'matrix[1].type' is no work type");
  expect_refused(replaced(text, "\"rows\": 512", "\"rows\": 0.5"), "'matrix[0].samples[0].rows' is no whole");
  expect_refused(replaced(text, "\"threads\": 1\n", "\"threads\": 0\n"),
                 "'host_rates[0].threads' is outside");
  expect_refused(replaced(text, "\"matrix\": [", "\"matrix\": {}, \"x\": ["), "'text' has a field");
}

TEST(MachineJson, RefusesRatesThatNoMachineHas) {
  const std::string text = to_json(test::sample_file());
  expect_refused(replaced(text, "\"bytes_per_second\": 52000000000.0", "\"bytes_per_second\": 1.8e19"),
                 "'d2h.bytes_per_second' is outside 1 to 1e+16");
  expect_refused(replaced(text, "\"flops_per_second\": 700000000000000.0", "\"flops_per_second\": 1e21"),
                 "'matrix[1].flops_per_second' is outside 1 to 1e+20");
}

TEST(MachineJson, RefusesOneNameTwiceAndAByteBehindTheText) {
  const std::string text = to_json(test::sample_file());
  expect_refused(replaced(text, "\"note\"", "\"host\": \"other\", \"note\""),
                 "\"host\" stands twice in one object");
  expect_refused(text + '\0', "is 0, which no text has");
  expect_refused(text + '\0' + "more", "is 0, which no text has");
}

TEST(MachineJson, RefusesListsThatAreTooLong) {
  std::string items = "0";
  for (int i = 0; i < 1024; ++i) items += ",0";
  expect_refused(
      replaced(to_json(test::sample_file()), "\"host_rates\": [", "\"host_rates\": [" + items + ","),
      "'host_rates' has more than 1024 items");
}

TEST(MachineJson, SurvivesDeepNestingAndEveryTruncation) {
  expect_refused(std::string(200'000, '['), "does not parse");
  expect_refused(std::string(200'000, '[') + std::string(200'000, ']'), "'text' is no object");
  const std::string text = to_json(test::sample_file());
  for (std::size_t length = 0; length + 2 < text.size(); ++length) {
    EXPECT_THROW(machine_from_json(std::string_view(text).substr(0, length)), InvalidInput) << length;
  }
}

// Whatever is read can be written and read again; nothing else than InvalidInput comes out.
TEST(MachineJson, SurvivesRandomDamage) {
  const std::string whole = to_json(test::sample_file());
  std::mt19937 random(23);
  auto below = [&](std::size_t bound) { return random() % bound; };
  const std::string likely = "0123456789-.eE,:[]{}\"nul";
  int read = 0, refused = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = whole;
    for (std::size_t hits = 1 + below(3); hits > 0; --hits) {
      const std::size_t at = below(text.size());
      switch (below(4)) {
        case 0:
          text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
          break;
        case 1:
          text[at] = likely[below(likely.size())];
          break;
        case 2:
          text.erase(at, 1 + below(20));
          break;
        default:
          text.insert(at, text.substr(below(text.size()), 1 + below(20)));
          break;
      }
    }
    try {
      const MachineFile file = machine_from_json(text);
      EXPECT_EQ(to_json(machine_from_json(to_json(file))), to_json(file));
      const DataType type = file.matrix.empty() ? DataType::f32 : file.matrix[0].type;
      EXPECT_TRUE(std::isfinite(machine_for(file, type).flops_per_second));
      if (file.peers) {
        EXPECT_GT(machine_for(file, type, file.peers->devices).peer.bytes_per_second, 0);
      }
      ++read;
    } catch (const InvalidInput&) {
      ++refused;
    }
  }
  EXPECT_GT(read, 50);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace stowage
