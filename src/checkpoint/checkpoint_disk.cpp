// The disk of a folder of checkpoints: its room and its rate.
#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "src/base/laps.h"
#include "src/base/output_file.h"
#include "src/checkpoint/checkpoint_tensors.h"
#include "src/checkpoint/checksum.h"
#include "src/checkpoint/state_json.h"
#include "stowage/checkpoint.h"

namespace stowage {
namespace {

constexpr Bytes disk_block = 4096;  // most file systems hand out whole blocks of this size

// Returns bytes that no file system can pack: a xorshift of 64 bits.
std::vector<std::byte> incompressible(Bytes bytes) {
  std::vector<std::byte> values(bytes);
  std::uint64_t x = 0x9e3779b97f4a7c15;
  for (std::byte& value : values) {
    x ^= x << 13U;
    x ^= x >> 7U;
    x ^= x << 17U;
    value = static_cast<std::byte>(x >> 32U);
  }
  return values;
}

}  // namespace

std::optional<Bytes> free_disk_bytes(const std::string& folder) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) return std::nullopt;
  return static_cast<Bytes>(disk.f_bavail) * disk.f_frsize;
}

Bytes checkpoint_disk_bytes(CheckpointState state) {
  for (CheckpointTensor& tensor : state.tensors) tensor.checksum.assign(checksum_digits, '0');
  return align_up(checkpoint_bytes(state.tensors), disk_block) +
         align_up(state_to_json(state).size(), disk_block);
}

void CheckpointFolder::require_room(const CheckpointState& state) const {
  const std::optional<Bytes> room = free_(folder_);
  const Bytes needed = checkpoint_disk_bytes(state);
  if (!room || *room >= needed) return;
  throw Error(
      fmt::format("{}: left out: it takes {} ({} bytes), and its disk has {} ({} bytes) left, beside the "
                  "checkpoints that are kept until it is complete; make room there",
                  folder_, format_bytes(needed), needed, format_bytes(*room), *room));
}

double CheckpointFolder::measure_write(Bytes bytes) const {
  const std::vector<std::byte> piece = incompressible(std::min(bytes, checkpoint_piece));
  const std::string path = fmt::format("{}/{}rate", folder_, writing_prefix);
  Laps laps;
  OutputFile file("", path, Writing::placed);
  for_each_piece(bytes,
                 [&](Bytes offset, Bytes count) { file.write_at(offset, std::span(piece).first(count)); });
  file.commit();
  const double seconds = laps.lap();
  std::error_code error;
  std::filesystem::remove(path, error);
  return seconds;
}

}  // namespace stowage
