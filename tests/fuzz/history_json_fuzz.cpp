// Recorded histories: `stowage replay run.jsonl`. What is read is replayed too.
#include "src/history/histories.h"

#include "tests/fuzz/target.h"
#include "tests/support/checked_model.h"
#include "tests/support/planned_offsets.h"
#include "tools/replay/pytorch_model.h"
#include "tools/replay/replay.h"

namespace stowage::fuzz {

namespace {

AllocationTrace repeating() {
  TraceBuilder builder;
  builder.allocate(4096);
  for (int i = 0; i < 4; ++i) {
    if (i > 0) builder.begin_iteration();
    const AllocationId a = builder.allocate(1_MiB), b = builder.allocate(3_MiB, 1);
    builder.free(a);
    const AllocationId c = builder.allocate(512);
    builder.free(b);
    builder.free(c);
  }
  return std::move(builder).finish();
}

}  // namespace

std::vector<std::string> seeds() {
  AllocationTrace unmarked = repeating();
  unmarked.iterations.clear();
  return {to_history(repeating()), to_history(unmarked),
          "{\"stowage_history\": 1, \"note\": \"x\"}\n\n" + history_allocate(3, 7, 99, 12345)};
}

std::vector<std::string> dictionary() {
  return {"\"stowage_history\": 1",
          "\"sequence\"",
          "\"iteration\"",
          "\"op\": \"allocate\"",
          "\"op\": \"free\"",
          "\"id\"",
          "\"bytes\"",
          "\"stream\"",
          "\"note\"",
          "4611686018427387904",
          "9223372036854775807",
          "18446744073709551615",
          "-1",
          "\n"};
}

}  // namespace stowage::fuzz

namespace {

using namespace stowage;

// Whatever the trace holds, the models keep their contract.
void replay_all(const AllocationTrace& trace) {
  const auto pytorch = [](bool expandable) {
    return std::make_unique<PytorchModel>(PytorchOptions{expandable});
  };
  const auto native = pytorch(false), expandable = pytorch(true);
  test::PlannedOffsets planned(pytorch(true));
  for (AllocatorModel* model :
       {static_cast<AllocatorModel*>(native.get()), static_cast<AllocatorModel*>(expandable.get()),
        static_cast<AllocatorModel*>(&planned)}) {
    test::CheckedModel checked(*model);
    try {
      replay(trace, checked);
    } catch (const std::exception& error) {
      fuzz::broken(std::string("a replay failed: ") + error.what());
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  const auto trace = fuzz::parsed_or_refused([&] { return parse_history(text, "input"); });
  if (!trace) return 0;
  fuzz::check_round_trip(*trace, to_history,
                         [](std::string_view written) { return parse_history(written, "written"); });
  replay_all(*trace);
  return 0;
}
