// Machine files: `--machine FILE`.
#include "src/machine/chosen_machine.h"
#include "stowage/machine_file.h"
#include "tests/fuzz/target.h"
#include "tests/machine/sample_file.h"
#include "tools/choices/machine_choice.h"

namespace stowage::fuzz {

std::vector<std::string> seeds() {
  MachineFile bare = test::sample_file();
  bare.host_rates.clear();
  bare.matrix.resize(1);
  bare.codec.clear();
  bare.peers = PeerDevices{2, 2, {20e9, 4e-5, true}, PeerPath::host_memory};
  MachineFile alone = bare;
  alone.peers.reset();
  alone.host_memory_bytes = 0;
  return {to_json(test::sample_file()), to_json(bare), to_json(alone)};
}

std::vector<std::string> dictionary() {
  return {"\"f32\"",
          "\"f64\"",
          "\"bf16\"",
          "\"samples\": []",
          "\"matrix\": []",
          "null",
          "\"stowage.machine\"",
          "{}",
          "true",
          "false",
          "\"peers\": {}",
          "\"host_memory_bytes\": 1",
          "\"codec\": []",
          "\"bits\": 4"};
}

namespace {

void check_codec(const Machine& machine) {
  for (const CodeBits bits : {CodeBits::four, CodeBits::eight}) {
    const CodecRates rates = machine.codec(bits);
    if (!(rates.encode_bytes_per_second > 0 && rates.decode_bytes_per_second > 0))
      broken("a codec without rates");
  }
}

// Of all devices: as much for each, and no more than their memories have.
void check_host_budget(const MachineFile& file) {
  const Bytes budget = host_budget_for(file, file.peers->devices);
  const auto devices = static_cast<Bytes>(file.peers->devices);
  const auto sharing = static_cast<Bytes>(file.peers->devices_per_host_memory);
  const Bytes memories = (devices + sharing - 1) / sharing;
  const bool fits = budget % devices == 0 && budget <= memories * file.host_memory_bytes;
  if (file.host_memory_bytes == 0 ? budget != unlimited : !fits)
    broken("a host budget that its memories do not have");
}

}  // namespace
}  // namespace stowage::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stowage;
  const auto file = fuzz::parsed_or_refused([&] { return machine_from_json(fuzz::text_of(data, size)); });
  if (!file) return 0;
  fuzz::check_round_trip(
      *file, [](const MachineFile& of) { return to_json(of); }, machine_from_json);
  describe_machine(*file);
  for (const DataType type : {usual_type(*file), DataType::f32, DataType::bf16, DataType::f64}) {
    try {
      const Machine machine = machine_for(*file, type);
      if (!(machine.flops_per_second > 0 && machine.host_bytes_per_second > 0))
        fuzz::broken("a rate of nothing");
      fuzz::check_codec(machine);
      if (!file->peers) continue;
      fuzz::check_host_budget(*file);
      const Machine each = machine_for(*file, type, file->peers->devices);
      if (!(each.peer.bytes_per_second > 0 && each.h2d.bytes_per_second > 0 &&
            each.host_bytes_per_second <= machine.host_bytes_per_second))
        fuzz::broken("no part of a rate");
    } catch (const InvalidInput&) {
      continue;  // not measured
    }
  }
  return 0;
}
