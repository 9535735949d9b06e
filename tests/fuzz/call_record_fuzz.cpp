// What `stowage run --record` wrote: `stowage replay record.csv`.

#include "src/history/histories.h"
#include "tests/fuzz/target.h"

namespace stowage::fuzz {

std::vector<std::string> seeds() {
  const std::string header =
      "# stowage record 1\ntime_ns,pid,thread,event,kind,device,stream,address,bytes,live,result,detail\n";
  return {header +
              "20,1,1,alloc,device,0,0,0x1000,100,100,0,\n30,1,1,alloc,physical,0,3,0x1,50,100,0,place=host\n"
              "40,1,1,free,device,0,0,0x1000,100,0,0,\n50,1,1,reset,physical,0,0,0x1,50,0,0,\n",
          header + "1,1,1,alloc,device,0,0,0x1,1,1,0,\n2,1,2,free,device,0,0,0x1,1,0,0,\n3,1,2,alloc,dev",
          header};
}

std::vector<std::string> dictionary() {
  return {"alloc",
          "free",
          "reset",
          "device",
          "physical",
          "async",
          "place=host",
          ",",
          "\n",
          "0x",
          "-1",
          "#",
          "4611686018427387904",
          "18446744073709551615"};
}

}  // namespace stowage::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stowage;
  const std::string_view text = fuzz::text_of(data, size);
  const auto trace = fuzz::parsed_or_refused([&] { return parse_call_record(text, "input"); });
  if (!trace) return 0;
  // It is a trace that the other format can hold.
  if (parse_history(to_history(*trace), "written") != *trace) fuzz::broken("a trace that cannot be written");
  return 0;
}
