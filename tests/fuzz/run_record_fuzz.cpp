// The record that `stowage run` reads back: several processes write it, and one of them may crash.
#include <sstream>

#include "tests/fuzz/target.h"
#include "tools/cli/run_report.h"

namespace stowage::fuzz {

std::vector<std::string> seeds() {
  return {
      "# stowage record 1\ntime_ns,pid,thread,event,kind,device,stream,address,bytes,live,result,detail\n"
      "10,1,1,process,-,-1,0,0x0,0,0,0,name\n20,1,1,alloc,device,0,0,0x1000,100,100,0,\n"
      "40,1,1,free,device,0,0,0x1000,100,0,0,\n",
      "20,1,1,calls,-,-1,0,0x0,0,0,0,1\n20,2,1,total,-,0,0,0x0,100,100,0,\n5,1,1,missed,-,-1,0,0x3,0,0,0,"
      "f\n"};
}

std::vector<std::string> dictionary() {
  return {"alloc",      "free",  "reset", "refused", "failed",  "process",
          "calls",      "total", "graph", "async",   "spilled", "place=host",
          "spill=full", ",",     "\n",    "-1",      "<b>",     "18446744073709551615"};
}

}  // namespace stowage::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stowage;
  const auto record = fuzz::parsed_or_refused([&] {
    std::istringstream text{std::string(fuzz::text_of(data, size))};
    return read_run_record(text);
  });
  if (!record) fuzz::broken("a record is never refused");
  for (const auto& [id, process] : record->processes) {
    for (const auto& [name, kind] : process.kinds) {
      if (kind.live > kind.peak) fuzz::broken("a peak below what is left");
    }
  }
  const RunReport report{{"program"}, 1_MiB, 1_MiB, "exit code 0"};
  if (run_report_text(report, *record).empty()) fuzz::broken("no text");
  if (run_report_html(report, *record).find("<b>") != std::string::npos)
    fuzz::broken("the record's own markup");
  return 0;
}
