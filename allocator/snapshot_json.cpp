#include <nlohmann/json.hpp>

#include "stowage/allocator_snapshot.h"

namespace stowage {
namespace {

using Json = nlohmann::ordered_json;

class SnapshotJson {
 public:
  explicit SnapshotJson(const DeviceSnapshot& device) : device_(device), memory_(device.memory) {}

  Json all() const {
    const AllocatorStatistics& statistics = memory_.statistics;
    Json json{{"device", device_.device},
              {"limit", statistics.limit},
              {"reserved", statistics.reserved},
              {"peak_reserved", statistics.peak_reserved},
              {"maps", statistics.maps},
              {"unmapped_granules", statistics.unmapped_granules},
              {"out_of_memory", statistics.out_of_memory}};
    json["pools"] = list(statistics.pools, [this](const auto& pool) { return of_pool(pool); });
    json["streams"] = list(statistics.streams, [this](const auto& stream) { return of_stream(stream); });
    json["segments"] = list(memory_.segments, [this](const auto& segment) { return of_segment(segment); });
    json["dropped_events"] = memory_.dropped_events;
    json["events"] = list(memory_.events, [this](const auto& event) { return of_event(event); });
    return json;
  }

 private:
  template <class Items, class Write>
  static Json list(const Items& items, Write&& write) {
    Json json = Json::array();
    for (const auto& item : items) json.push_back(write(item));
    return json;
  }
  std::uint64_t stream(LaneId lane) const {
    return device_.native_stream ? device_.native_stream(lane) : lane;
  }

  static Json of_pool(const PoolStatistics& pool) {
    return {{"pool", pool.pool},
            {"allocated", pool.allocated},
            {"requested", pool.requested},
            {"cached", pool.cached},
            {"peak_allocated", pool.peak_allocated},
            {"reserved", pool.reserved},
            {"peak_reserved", pool.peak_reserved},
            {"largest_free", pool.largest_free},
            {"fragmentation", pool.fragmentation},
            {"allocations", pool.allocations},
            {"hits", pool.hits},
            {"waits", pool.waits},
            {"retries", pool.retries}};
  }

  Json of_stream(const StreamStatistics& statistics) const {
    return {{"stream", stream(statistics.stream)},
            {"pool", statistics.pool},
            {"allocated", statistics.allocated},
            {"requested", statistics.requested},
            {"peak_allocated", statistics.peak_allocated},
            {"cached", statistics.cached},
            {"allocations", statistics.allocations},
            {"releases", statistics.releases},
            {"hits", statistics.hits},
            {"waits", statistics.waits}};
  }

  Json of_segment(const SnapshotSegment& segment) const {
    return {{"address", segment.address},
            {"bytes", segment.bytes},
            {"pool", segment.pool},
            {"blocks", list(segment.blocks, [this](const auto& block) { return of_block(block); })}};
  }

  Json of_block(const SnapshotBlock& block) const {
    Json json{{"address", block.address},
              {"bytes", block.bytes},
              {"requested", block.requested},
              {"state", block.live     ? "live"
                        : block.cached ? "cached"
                                       : "free"}};
    if (block.live || block.cached) json["stream"] = stream(block.stream);
    return json;
  }

  Json of_event(const AllocatorEvent& event) const {
    return {
        {"what", to_string(event.kind)},  {"address", event.address}, {"bytes", event.bytes},
        {"stream", stream(event.stream)}, {"pool", event.pool},       {"microseconds", event.microseconds}};
  }

  const DeviceSnapshot& device_;
  const AllocatorSnapshot& memory_;
};

}  // namespace

std::string snapshot_json(const std::vector<DeviceSnapshot>& devices) {
  Json all = Json::array();
  for (const DeviceSnapshot& device : devices) all.push_back(SnapshotJson(device).all());
  return Json{{"version", 1}, {"devices", all}}.dump(1);
}

}  // namespace stowage
