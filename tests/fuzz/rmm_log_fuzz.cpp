// A log of RMM: `stowage replay rmm.csv`.
#include "src/history/histories.h"
#include "tests/fuzz/target.h"

namespace stowage::fuzz {

std::vector<std::string> seeds() {
  const std::string header = "Thread,Time,Action,Pointer,Size,Stream\n";
  return {header, header +
                      "1,10:00:00:000001,allocate,0x7f0000000000,1024,0x0\n"
                      "2,10:00:00:000002,allocate failure,0x0,99,0x55d0c0ffee00\n"
                      "1,10:00:00:000003,free,0x7f0000000000,1024,0x0\n"};
}

std::vector<std::string> dictionary() {
  return {"allocate", "free", "allocate failure",    "0x",
          "(nil)",    ",",    "4611686018427387904", "18446744073709551615"};
}

}  // namespace stowage::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stowage;
  const std::string_view text = fuzz::text_of(data, size);
  const auto trace = fuzz::parsed_or_refused([&] { return parse_rmm_log(text, "input"); });
  if (trace && parse_history(to_history(*trace), "written") != *trace)
    fuzz::broken("a trace that cannot be written");
  return 0;
}
