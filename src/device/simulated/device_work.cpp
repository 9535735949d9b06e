#include "src/device/simulated/device_implementation.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "stowage/error.h"

namespace stowage::simulated {

void Implementation::copy(LaneId lane, void* to, const void* from, Bytes bytes, std::string_view name) {
  const MutexLock lock(mutex_);
  const bool fails = begin_work("copy", lane);
  const Work work{"copy", name, lane};
  expect_kinds(work, to, from);
  if (bytes == 0) return;
  const RangeAccess target = resolve(work, {to, bytes, AccessMode::write});
  const RangeAccess source = resolve(work, {const_cast<void*>(from), bytes, AccessMode::read});
  const std::string& kept = names_.intern(name);
  if (options_.check_accesses) checker_.copy(lane, kept, target, source);
  touch(target);
  touch(source);
  const LaneRole role = checker_.role(lane);
  (role == LaneRole::h2d ? counters_.h2d_bytes : counters_.d2h_bytes) += bytes;
  Task task{.kind = TaskKind::copy, .fails = fails, .name = &kept};
  task.to = to;
  task.from = from;
  task.bytes = bytes;
  task.direction = role;
  task.seconds = link(role).seconds(bytes);
  submit(lane, task);
}

void Implementation::launch(LaneId lane, const Launch& launch) {
  const MutexLock lock(mutex_);
  const bool fails = begin_work("launch", lane);
  if (launch.function == nullptr)
    throw InvalidInput(fmt::format("launch '{}': no function; give it one", launch.name));
  resolve_all({"launch", launch.name, lane}, launch.accesses, accesses_);
  const std::string& kept = names_.intern(launch.name);
  if (options_.check_accesses) checker_.launch(lane, kept, accesses_);
  for (const RangeAccess& access : accesses_) touch(access);
  Task task{.kind = TaskKind::launch, .fails = fails, .name = &kept};
  task.function = launch.function;
  task.context = launch.context;
  task.seconds = launch.modelled_seconds;
  for (const RangeAccess& access : accesses_) task.bytes += access.end - access.begin;
  submit(lane, task);
}

std::vector<Access> Implementation::undefined_parts(LaneId lane, std::string_view name, const Access& bytes) {
  const MutexLock lock(mutex_);
  expect_lane(lane, "launch");
  std::vector<Access> parts;
  if (bytes.bytes == 0) return parts;
  const RangeAccess range = resolve({"launch", name, lane}, bytes);
  if (!options_.check_accesses) return parts;
  checker_.for_each_undefined(range, [&](Bytes begin, Bytes end) {
    parts.push_back(
        {static_cast<std::byte*>(bytes.address) + (begin - range.begin), end - begin, AccessMode::write});
  });
  return parts;
}

void Implementation::meet(LaneId lane, const Meeting& meeting) {
  const MutexLock lock(mutex_);
  const bool fails = begin_work("launch", lane);
  resolve_all({"launch", meeting.name, lane}, meeting.accesses, accesses_);
  resolve_all({"launch", meeting.name, lane}, meeting.undefined, undefined_);
  const std::string& kept = names_.intern(meeting.name);
  if (options_.check_accesses) checker_.meet(lane, kept, accesses_, undefined_);
  for (const RangeAccess& access : accesses_) touch(access);
  Task task{.kind = TaskKind::meet, .fails = fails, .name = &kept};
  task.meeting = meeting.function;
  task.context = meeting.context;
  for (const RangeAccess& access : accesses_) task.bytes += access.end - access.begin;
  submit(lane, task);
}

void Implementation::discard(LaneId lane, void* address, Bytes bytes) {
  const MutexLock lock(mutex_);
  begin_call("discard");
  expect_lane(lane, "discard");
  if (bytes == 0) return;
  const Allocation* const allocation = memory_.find(address);
  if (allocation != nullptr && allocation->kind != MemoryKind::device)
    throw InvalidInput("discard: the address is memory of the host; discard device memory only");
  const RangeAccess range = resolve({"discard", "discard", lane}, {address, bytes, AccessMode::write});
  const std::string& kept = names_.intern("discard");
  if (options_.check_accesses) checker_.discard(lane, kept, range);
  if (options_.poison == Poison::none) return;
  Task task{.kind = TaskKind::poison, .name = &kept};
  task.to = address;
  task.bytes = bytes;
  submit(lane, task);
}

RangeAccess Implementation::resolve(const Work& work, const Access& access) {
  const Allocation* const found = memory_.find(access.address);
  if (found == nullptr)
    throw AccessViolation(
        fmt::format("{} '{}' on {} touches {} bytes at {}, which no live allocation holds: allocate "
                    "them first, and keep them until the work is done",
                    work.call, work.name, checker_.describe_lane(work.lane), access.bytes, access.address),
        std::string(work.call));
  const auto begin = static_cast<Bytes>(static_cast<std::byte*>(access.address) - found->base);
  const bool inside = access.bytes <= found->bytes - begin;
  if (!inside || !memory_.is_mapped(*found, begin, begin + access.bytes))
    throw AccessViolation(
        fmt::format("{} '{}' on {} touches {}, {}", work.call, work.name, checker_.describe_lane(work.lane),
                    checker_.describe_bytes(found->range, begin, begin + access.bytes),
                    inside ? "not all of which is mapped: map it first"
                           : "which end past it: correct the access's size"),
        std::string(work.call));
  return {found->range, begin, begin + access.bytes, access.mode};
}

void Implementation::resolve_all(const Work& work, std::span<const Access> accesses,
                                 std::vector<RangeAccess>& ranges) {
  ranges.clear();
  for (const Access& access : accesses)
    if (access.bytes > 0) ranges.push_back(resolve(work, access));
}

void Implementation::touch(const RangeAccess& access) {
  if (checker_.kind(access.range) == MemoryKind::device)
    counters_.highest_device_byte = std::max(counters_.highest_device_byte, access.end);
}

void Implementation::expect_kinds(const Work& work, const void* to, const void* from) {
  const LaneRole role = checker_.role(work.lane);
  if (role != LaneRole::h2d && role != LaneRole::d2h)
    throw InvalidInput(fmt::format("copy '{}': {} cannot copy; use an h2d or a d2h lane", work.name,
                                   checker_.describe_lane(work.lane)));
  const Allocation* const target = memory_.find(to);
  const Allocation* const source = memory_.find(from);
  if (target == nullptr || source == nullptr) return;  // `resolve` reports it
  const bool in = role == LaneRole::h2d;
  if ((target->kind == MemoryKind::device) != in || (source->kind == MemoryKind::device) == in)
    throw InvalidInput(fmt::format(
        "copy '{}': {} copies from {}; give it one side of each kind, in that direction", work.name,
        checker_.describe_lane(work.lane), in ? "host to device memory" : "device to host memory"));
}

}  // namespace stowage::simulated
