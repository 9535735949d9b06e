// MachineFile <-> JSON. The reader trusts nothing: every number is checked where it is read.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "src/graph/json_field.h"
#include "stowage/error.h"
#include "stowage/machine_file.h"

namespace stowage {
namespace {

using Json = nlohmann::json;

constexpr std::string_view format_name = "stowage.machine";
constexpr std::uint64_t format_version = 1;
constexpr const char* host_total_name = "host_total_bytes_per_second";  // optional member
// The next seven members are optional too.
constexpr const char* host_memory_name = "host_memory_bytes";
constexpr const char* codec_name = "codec";
constexpr const char* ops_name = "ops";
constexpr const char* compute_beside_copy_name = "compute_beside_copy";
constexpr const char* compute_beside_host_name = "compute_beside_host";
constexpr const char* host_beside_compute_name = "host_beside_compute";
constexpr const char* peers_name = "peers";
// Members of "peers"; the first three only if measured.
constexpr const char* gathers_name = "gathers";
constexpr const char* exchanges_name = "exchanges";
constexpr const char* together_name = "links_together";
constexpr const char* through_host_name = "through_host";  // always there
constexpr const char* over_link_name = "over_link";        // only if true
constexpr std::size_t most_items = 1024;
constexpr std::size_t most_ops = 8192;
constexpr std::size_t most_codecs = 6;  // three types, each with codes of 4 and of 8 bits
constexpr std::size_t most_characters = 4096;
constexpr std::uint64_t most_bytes = std::uint64_t{1} << 62U;
constexpr std::uint64_t most_host_bytes = std::uint64_t{1}
                                          << 55U;  // the sum over all devices still fits a number
// Limits per second: a thousand times a machine of today.
constexpr double most_bytes_per_second = 1e16;
constexpr double most_flops_per_second = 1e20;
constexpr double most_work = 1e24;    // limit of one op's flops, and of its bytes
constexpr double most_seconds = 1e6;  // limit of one measurement
constexpr double least_share = 1e-3;
constexpr std::uint64_t most_devices = 64;
constexpr std::int64_t most_extent = std::int64_t{1} << 40U;
constexpr std::array work_types{DataType::f32, DataType::f64, DataType::bf16, DataType::f16};

[[noreturn]] void refuse(const std::string& where, std::string_view why) {
  throw InvalidInput(
      fmt::format("machine JSON: '{}' {}; give a text that stowage calibrate wrote", where, why));
}

// writing

// Writes a whole number. A negative number stays negative, so that the reader refuses the text.
Json whole(std::int64_t value) { return value < 0 ? Json(value) : Json(static_cast<std::uint64_t>(value)); }

Json copies_json(const std::vector<CopySample>& copies) {
  Json samples = Json::array();
  for (const CopySample& sample : copies)
    samples.push_back({{"bytes", sample.bytes}, {"seconds", sample.seconds}});
  return samples;
}

Json curve_json(const CopyCurve& curve) {
  return {{"bytes_per_second", curve.fit.bytes_per_second},
          {"latency_seconds", curve.fit.latency_seconds},
          {"samples", copies_json(curve.samples)}};
}

Json matrix_json(const MatrixRate& rate) {
  Json samples = Json::array();
  for (const MatrixSample& sample : rate.samples) {
    samples.push_back({{"rows", whole(sample.rows)},
                       {"inner", whole(sample.inner)},
                       {"columns", whole(sample.columns)},
                       {"seconds", sample.seconds}});
  }
  return {{"type", to_string(rate.type)},
          {"flops_per_second", rate.flops_per_second},
          {"samples", std::move(samples)}};
}

Json codec_json(const std::vector<CodecRate>& rates) {
  Json codec = Json::array();
  for (const CodecRate& rate : rates) {
    codec.push_back({{"type", to_string(rate.type)},
                     {"bits", static_cast<std::uint64_t>(rate.bits)},
                     {"encode_bytes_per_second", rate.rates.encode_bytes_per_second},
                     {"decode_bytes_per_second", rate.rates.decode_bytes_per_second}});
  }
  return codec;
}

Json ops_json(const std::vector<OpSample>& samples) {
  Json ops = Json::array();
  for (const OpSample& sample : samples) {
    ops.push_back({{"kernel", sample.kernel},
                   {"type", to_string(sample.type)},
                   {"flops", sample.flops},
                   {"bytes", sample.bytes},
                   {"seconds", sample.seconds}});
  }
  return ops;
}

void add_measured_steps(const MachineFile& file, Json& json) {
  if (!file.ops.empty()) json[ops_name] = ops_json(file.ops);
  const auto add_share = [&](const char* name, double share) {
    if (share != 1) json[name] = share;
  };
  add_share(compute_beside_copy_name, file.compute_beside_copy);
  add_share(compute_beside_host_name, file.compute_beside_host);
  add_share(host_beside_compute_name, file.host_beside_compute);
}

Json peers_json(const PeerDevices& peers) {
  Json json = {{"devices", whole(peers.devices)},
               {"devices_per_host_memory", whole(peers.devices_per_host_memory)},
               {"bytes_per_second", peers.link.bytes_per_second},
               {"latency_seconds", peers.link.latency_seconds},
               {through_host_name, peers.path == PeerPath::host_memory}};
  if (peers.path == PeerPath::link) json[over_link_name] = true;
  if (!peers.gathers.empty()) json[gathers_name] = copies_json(peers.gathers);
  if (!peers.exchanges.empty()) json[exchanges_name] = copies_json(peers.exchanges);
  if (const auto& rates = peers.together)
    json[together_name] = {{"h2d", rates->h2d},
                           {"d2h", rates->d2h},
                           {"h2d_both", rates->h2d_both},
                           {"d2h_both", rates->d2h_both}};
  return json;
}

Json file_json(const MachineFile& file) {
  Json matrix = Json::array();
  for (const MatrixRate& rate : file.matrix) matrix.push_back(matrix_json(rate));
  Json host_rates = Json::array();
  for (const HostRate& rate : file.host_rates) {
    host_rates.push_back({{"threads", whole(rate.threads)}, {"bytes_per_second", rate.bytes_per_second}});
  }
  Json json = {{"format", format_name},
               {"version", format_version},
               {"device", file.device},
               {"backend", file.backend},
               {"host", file.host},
               {"processor", file.processor},
               {"measured", file.measured},
               {"note", file.note},
               {"device_bytes", file.device_bytes},
               {"overhead_bytes", file.overhead_bytes},
               {"h2d", curve_json(file.h2d)},
               {"d2h", curve_json(file.d2h)},
               {"h2d_both", curve_json(file.h2d_both)},
               {"d2h_both", curve_json(file.d2h_both)},
               {"matrix", std::move(matrix)},
               {"device_bytes_per_second", file.device_bytes_per_second},
               {"launch_seconds", file.launch_seconds},
               {"host_rates", std::move(host_rates)}};
  if (file.host_total_bytes_per_second != 0) json[host_total_name] = file.host_total_bytes_per_second;
  if (file.host_memory_bytes != 0) json[host_memory_name] = file.host_memory_bytes;
  if (file.peers) json[peers_name] = peers_json(*file.peers);
  if (!file.codec.empty()) json[codec_name] = codec_json(file.codec);
  add_measured_steps(file, json);
  return json;
}

// reading: a value of the text and where it stands, e.g. "h2d.samples[3].bytes"

struct Node {
  const Json& json;
  std::string where;

  // Requires exactly `count` members; the reads that follow name a missing one.
  void expect_members(std::size_t count) const {
    if (!json.is_object()) refuse(where, "is no object");
    if (json.size() > count) refuse(where, "has a field that is not known");
  }
  bool has(const char* name) const { return json.is_object() && json.contains(name); }
  Node operator[](const char* name) const {
    const std::string path = where == "text" ? name : fmt::format("{}.{}", where, name);
    const auto found = json.find(name);
    if (found == json.end()) refuse(path, "is not there");
    return {*found, path};
  }
  template <class Read>
  auto list(Read&& read, std::size_t most = most_items) const {
    if (!json.is_array()) refuse(where, "is no list");
    if (json.size() > most) refuse(where, fmt::format("has more than {} items", most));
    std::vector<decltype(read(*this))> items;
    for (std::size_t i = 0; i < json.size(); ++i) {
      items.push_back(read(Node{json[i], fmt::format("{}[{}]", where, i)}));
    }
    return items;
  }
  std::string text() const {
    if (!json.is_string()) refuse(where, "is no string");
    auto value = json.get<std::string>();
    if (value.size() > most_characters) refuse(where, fmt::format("is longer than {}", most_characters));
    return value;
  }
  std::uint64_t integer(std::uint64_t least, std::uint64_t most) const {
    if (!json.is_number_unsigned()) refuse(where, "is no whole number from 0 up");
    const auto value = json.get<std::uint64_t>();
    if (value < least || value > most) refuse(where, fmt::format("is outside {} to {}", least, most));
    return value;
  }
  double number(double least, double most) const {
    if (!json.is_number()) refuse(where, "is no number");
    const auto value = json.get<double>();
    if (!std::isfinite(value) || value < least || value > most) {
      refuse(where, fmt::format("is outside {} to {}", least, most));
    }
    return value;
  }
  bool boolean() const {
    if (!json.is_boolean()) refuse(where, "is neither true nor false");
    return json.get<bool>();
  }
  double bytes_per_second() const { return number(1, most_bytes_per_second); }
  double seconds() const { return number(0, most_seconds); }
  double amount() const { return number(0, most_work); }  // reads flops or bytes
  double share() const { return number(least_share, 1); }
  std::int64_t extent() const { return static_cast<std::int64_t>(integer(1, most_extent)); }
  DataType work_type() const {
    const std::string name = text();
    for (const DataType type : work_types) {
      if (to_string(type) == name) return type;
    }
    refuse(where, "is no work type");
  }
};

CopySample read_copy(const Node& node) {
  node.expect_members(2);
  return {node["bytes"].integer(1, most_bytes), node["seconds"].seconds()};
}

CopyCurve read_curve(const Node& node) {
  node.expect_members(3);
  CopyCurve curve;
  curve.fit = {node["bytes_per_second"].bytes_per_second(), node["latency_seconds"].seconds(), true};
  curve.samples = node["samples"].list(read_copy);
  return curve;
}

MatrixSample read_product(const Node& node) {
  node.expect_members(4);
  return {node["rows"].extent(), node["inner"].extent(), node["columns"].extent(), node["seconds"].seconds()};
}

MatrixRate read_matrix(const Node& node) {
  node.expect_members(3);
  return {node["type"].work_type(), node["flops_per_second"].number(1, most_flops_per_second),
          node["samples"].list(read_product)};
}

CodecRate read_codec_rate(const Node& node) {
  node.expect_members(4);
  CodecRate rate;
  rate.type = node["type"].work_type();
  if (rate.type == DataType::f64) refuse(node.where + ".type", "is f64, which has no codes");
  const std::uint64_t bits = node["bits"].integer(4, 8);
  if (bits != 4 && bits != 8) refuse(node.where + ".bits", "is neither 4 nor 8");
  rate.bits = static_cast<CodeBits>(bits);
  rate.rates = {node["encode_bytes_per_second"].bytes_per_second(),
                node["decode_bytes_per_second"].bytes_per_second()};
  return rate;
}

std::vector<CodecRate> read_codec(const Node& node) {
  std::vector<CodecRate> rates = node.list(read_codec_rate, most_codecs);
  std::set<std::pair<DataType, CodeBits>> known;
  for (const CodecRate& rate : rates)
    if (!known.emplace(rate.type, rate.bits).second)
      refuse(node.where,
             fmt::format("has {} with {} bits twice", to_string(rate.type), static_cast<int>(rate.bits)));
  return rates;
}

OpSample read_op(const Node& node) {
  node.expect_members(5);
  return {node["kernel"].text(), node["type"].work_type(), node["flops"].amount(), node["bytes"].amount(),
          node["seconds"].seconds()};
}

// Reads members that files of cards and older files lack. Returns the number of members read.
std::size_t read_measured_steps(const Node& node, MachineFile& file) {
  std::size_t members = 0;
  const auto read_share = [&](const char* name, double& share) {
    if (!node.has(name)) return;
    share = node[name].share();
    ++members;
  };
  read_share(compute_beside_copy_name, file.compute_beside_copy);
  read_share(compute_beside_host_name, file.compute_beside_host);
  read_share(host_beside_compute_name, file.host_beside_compute);
  if (!node.has(ops_name)) return members;
  file.ops = node[ops_name].list(read_op, most_ops);
  return members + 1;
}

HostRate read_host_rate(const Node& node) {
  node.expect_members(2);
  return {static_cast<int>(node["threads"].integer(1, 1U << 20U)),
          node["bytes_per_second"].bytes_per_second()};
}

LinkRates read_rates(const Node& node) {
  node.expect_members(4);
  return {node["h2d"].bytes_per_second(), node["d2h"].bytes_per_second(), node["h2d_both"].bytes_per_second(),
          node["d2h_both"].bytes_per_second()};
}

PeerDevices read_peers(const Node& node) {
  const bool gathers = node.has(gathers_name), exchanges = node.has(exchanges_name),
             together = node.has(together_name), over_link = node.has(over_link_name);
  node.expect_members(5 + std::size_t{gathers} + std::size_t{exchanges} + std::size_t{together} +
                      std::size_t{over_link});
  const std::uint64_t devices = node["devices"].integer(1, most_devices);
  PeerDevices peers;
  peers.devices = static_cast<int>(devices);
  peers.devices_per_host_memory = static_cast<int>(node["devices_per_host_memory"].integer(1, devices));
  peers.link = {node["bytes_per_second"].bytes_per_second(), node["latency_seconds"].seconds(), true};
  const bool through_host = node[through_host_name].boolean();
  if (over_link && (through_host || !node[over_link_name].boolean()))
    refuse(fmt::format("peers.{}", over_link_name),
           "is to be true, beside a through_host that is false, or to be left out");
  peers.path = through_host ? PeerPath::host_memory : over_link ? PeerPath::link : PeerPath::apart;
  if (gathers) peers.gathers = node[gathers_name].list(read_copy);
  if (exchanges) peers.exchanges = node[exchanges_name].list(read_copy);
  if (together) peers.together = read_rates(node[together_name]);
  return peers;
}

MachineFile read_file(const Node& node) {
  MachineFile file;
  const bool has_total = node.has(host_total_name);
  const bool has_memory = node.has(host_memory_name);
  const bool has_peers = node.has(peers_name);
  const bool has_codec = node.has(codec_name);
  node.expect_members(18 + std::size_t{has_total} + std::size_t{has_memory} + std::size_t{has_peers} +
                      std::size_t{has_codec} + read_measured_steps(node, file));
  if (node["format"].text() != format_name) refuse("format", "is not \"stowage.machine\"");
  if (node["version"].integer(0, most_bytes) != format_version) {
    refuse("version", fmt::format("is not {}, the one this program reads", format_version));
  }
  file.device = node["device"].text();
  file.backend = node["backend"].text();
  file.host = node["host"].text();
  file.processor = node["processor"].text();
  file.measured = node["measured"].text();
  file.note = node["note"].text();
  file.device_bytes = node["device_bytes"].integer(0, most_bytes);
  file.overhead_bytes = node["overhead_bytes"].integer(0, most_bytes);
  file.h2d = read_curve(node["h2d"]);
  file.d2h = read_curve(node["d2h"]);
  file.h2d_both = read_curve(node["h2d_both"]);
  file.d2h_both = read_curve(node["d2h_both"]);
  file.matrix = node["matrix"].list(read_matrix);
  file.device_bytes_per_second = node["device_bytes_per_second"].bytes_per_second();
  file.launch_seconds = node["launch_seconds"].seconds();
  file.host_rates = node["host_rates"].list(read_host_rate);
  if (has_total) file.host_total_bytes_per_second = node[host_total_name].bytes_per_second();
  if (has_memory) file.host_memory_bytes = node[host_memory_name].integer(1, most_host_bytes);
  if (has_peers) file.peers = read_peers(node[peers_name]);
  if (has_codec) file.codec = read_codec(node[codec_name]);
  return file;
}

}  // namespace

std::string to_json(const MachineFile& file) {
  const Json json = file_json(file);
  read_file({json, "text"});
  try {
    return json.dump(1) + '\n';
  } catch (const Json::exception& error) {
    throw InvalidInput(fmt::format("machine to JSON: {}; use UTF-8 in names", error.what()));
  }
}

MachineFile machine_from_json(std::string_view text) {
  const Json json = parse_json(text, {"machine JSON", "give a text that stowage calibrate wrote", "text"});
  return read_file({json, "text"});
}

}  // namespace stowage
