// What an allocator wrote of its own history: `stowage replay history.json`.

#include "src/history/histories.h"
#include "tests/fuzz/target.h"
#include "tools/replay/caching_model.h"

namespace stowage::fuzz {

std::vector<std::string> seeds() {
  const auto device = open_simulated_device({.executor = Executor::virtual_time});
  const Lane lane(*device, LaneRole::compute);
  CachingAllocator allocator(*device, {.history_entries = 20});
  void* a = allocator.allocate_raw(3_MiB, lane.id());
  void* b = allocator.allocate_raw(1, lane.id());
  allocator.release_raw(a);
  allocator.release_raw(b);
  return {allocator.history_json(), R"({"version": 1, "dropped": 3, "events": []})"};
}

std::vector<std::string> dictionary() {
  return {"\"version\": 1", "\"dropped\"", "\"events\"",          "\"number\"",          "\"what\"",
          "\"allocate\"",   "\"release\"", "\"address\"",         "\"bytes\"",           "\"stream\"",
          "\"pool\"",       "-1",          "4611686018427387904", "18446744073709551615"};
}

}  // namespace stowage::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stowage;
  const std::string_view text = fuzz::text_of(data, size);
  const auto trace = fuzz::parsed_or_refused([&] { return parse_allocator_history(text, "input"); });
  if (!trace) return 0;
  // It is a trace that the other format can hold.
  if (parse_history(to_history(*trace), "written") != *trace) fuzz::broken("a trace that cannot be written");
  return 0;
}
