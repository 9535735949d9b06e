// Lanes and memories, as two tables that plans, the planner and the engine use. A second device, or a tier
// below the host, would be more rows of both (docs/several_memories.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace stowage {

// The number of a row of memory_table.
enum class MemoryId : std::uint8_t { device, host };
struct MemoryRow {
  std::string_view name;
  bool has_arena = false;  // true: a plan places each lifetime; false: a bucket has one place for the run
};
inline constexpr std::array memory_table{MemoryRow{"device", true}, MemoryRow{"host", false}};

// The number of a row of lane_table. A lane is a queue that works in order: it moves bytes from one memory to
// another, or computes on one. The peer lane runs the ops by which devices that train one model together
// exchange bytes, and small ops on the exchanged values; it works beside the compute lane, on the same
// memory.
enum class LaneRole : std::uint8_t { compute, h2d, d2h, host, peer };
struct LaneRow {
  std::string_view name;
  MemoryId from = MemoryId::device, to = MemoryId::device;
  constexpr bool moves() const { return from != to; }
  constexpr bool computes_on(MemoryId memory) const { return from == memory && to == memory; }
  constexpr bool touches(MemoryId memory) const { return from == memory || to == memory; }
};
inline constexpr std::array lane_table{
    LaneRow{"compute", MemoryId::device, MemoryId::device}, LaneRow{"h2d", MemoryId::host, MemoryId::device},
    LaneRow{"d2h", MemoryId::device, MemoryId::host}, LaneRow{"host", MemoryId::host, MemoryId::host},
    LaneRow{"peer", MemoryId::device, MemoryId::device}};
inline constexpr std::size_t lane_roles = lane_table.size();

constexpr std::size_t index_of(LaneRole lane) { return static_cast<std::size_t>(lane); }
constexpr const LaneRow& row_of(LaneRole lane) { return lane_table[index_of(lane)]; }
constexpr const MemoryRow& row_of(MemoryId memory) { return memory_table[static_cast<std::size_t>(memory)]; }

// The lane's name; "unknown" outside the table.
constexpr std::string_view to_string(LaneRole lane) {
  return index_of(lane) < lane_roles ? row_of(lane).name : "unknown";
}

}  // namespace stowage
