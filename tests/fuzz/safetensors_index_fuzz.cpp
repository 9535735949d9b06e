// The index of a model in several files: `--init`.
#include "stowage/safetensors.h"
#include "tests/fuzz/target.h"

namespace stowage::fuzz {

std::vector<std::string> seeds() {
  return {safetensors_index(
              {{"a", "model-00001-of-00002.safetensors"}, {"b", "model-00002-of-00002.safetensors"}}, 9),
          R"({"weight_map": {"": "x.safetensors"}})"};
}

std::vector<std::string> dictionary() {
  return {"\"weight_map\"", "\"metadata\"", "../", "/", "..", "\\u0000", ".safetensors", "{}", "[", "\"a\""};
}

}  // namespace stowage::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stowage;
  const auto files =
      fuzz::parsed_or_refused([&] { return parse_safetensors_index(fuzz::text_of(data, size), "input"); });
  if (!files) return 0;
  for (const auto& [tensor, file] : *files)
    if (file.find('/') != std::string::npos || file.find('\0') != std::string::npos || file.starts_with('.'))
      fuzz::broken("a file outside of the folder");
  fuzz::check_round_trip(
      *files, [](const auto& of) { return safetensors_index(of, 1); },
      [](const std::string& text) { return parse_safetensors_index(text, "written"); });
  return 0;
}
