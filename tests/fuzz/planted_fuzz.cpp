// A target with defects, chosen by STOWAGE_PLANTED, so that the driver is seen to find them.
#include <cstring>

#include "tests/fuzz/target.h"

namespace stowage::fuzz {

std::vector<std::string> seeds() { return {"{\"size\": 12, \"name\": \"tensor\"}", "name = \"other\"\n"}; }
std::vector<std::string> dictionary() { return {"defect"}; }

namespace {

bool planted(const char* defect) {
  const char* chosen = std::getenv("STOWAGE_PLANTED");
  return chosen != nullptr && std::strcmp(chosen, defect) == 0;
}

// Kept in memory that is touched, so that the compiler leaves them alone.
volatile std::size_t sink = 0;

void go_wrong() {
  if (planted("crash")) {
    volatile int* nowhere = nullptr;
    *nowhere = 1;
  }
  if (planted("exception")) throw std::out_of_range("planted");
  while (planted("loop")) sink = sink + 1;
  if (planted("memory")) {
    for (std::vector<std::vector<char>> all;;) all.emplace_back(std::size_t{1} << 32, 'x');
  }
}

std::size_t parse(std::string_view text) {
  if (planted("refuse")) throw InvalidInput("no text is good enough");
  if (text.find("defect") != std::string_view::npos && text.find("tensor") != std::string_view::npos)
    go_wrong();
  if (text.empty()) throw InvalidInput("there is no text; give one");
  return text.size();
}

}  // namespace
}  // namespace stowage::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stowage::fuzz;
  parsed_or_refused([&] { return parse(text_of(data, size)); });
  return 0;
}
