// op_times: times single operations on a card, for gpu_check.py.
//
// Exit codes: 0 done, 2 bad input, 1 anything else.
#include "bench/gpu_check/op_times.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>

#include "stowage/choose_device.h"
#include "stowage/error.h"

namespace {

using stowage::bench::PrintTimes;
using Timed = void (*)(stowage::Device&, bool, const PrintTimes&);

const std::map<std::string, Timed>& operations() {
  static const std::map<std::string, Timed> all{{"slices", stowage::bench::time_slices},
                                                {"products", stowage::bench::time_products},
                                                {"allocator", stowage::bench::time_allocator}};
  return all;
}

int run(int count, char** arguments) {
  CLI::App app{"Times single operations on a card; prints lines of JSON", "op_times"};
  std::string what;
  std::string name = "cuda";
  bool small = false;
  app.add_option("what", what, "slices, products or allocator")
      ->required()
      ->check(CLI::IsMember(operations()));
  app.add_option("--device", name, "cuda or cuda:N");
  app.add_flag("--small", small, "sizes for a fake runtime");
  try {
    app.parse(count, arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const stowage::ChosenDevice chosen = stowage::open_device({.name = name});
  if (chosen.device->info().backend != "cuda")
    throw stowage::InvalidInput("op_times times a card: give --device cuda or cuda:N");
  operations().at(what)(*chosen.device, small, [](const nlohmann::ordered_json& line) {
    std::puts(line.dump().c_str());
    std::fflush(stdout);
  });
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return run(count, arguments);
  } catch (const stowage::InvalidInput& error) {
    std::fprintf(stderr, "op_times: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "op_times: %s\n", error.what());
    return 1;
  }
}
