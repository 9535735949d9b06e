// safetensors files: `--init`, read as far as their headers go.
#include "stowage/safetensors.h"
#include "tests/fuzz/target.h"

namespace stowage::fuzz {
namespace {

std::string file_of(std::vector<StoredTensor> tensors, std::map<std::string, std::string> metadata) {
  SafetensorsHeader header{std::move(tensors), std::move(metadata), 0};
  std::string file = safetensors_beginning(header);
  file.resize(header.file_bytes(), '\x7f');
  return file;
}

}  // namespace

std::vector<std::string> seeds() {
  return {file_of({{"wte.weight", StoredType::f32, {3, 2}, 0, 0}, {"h.0.b", StoredType::bf16, {}, 0, 0}},
                  {{"format", "pt"}}),
          file_of({{"a", StoredType::i64, {0}, 0, 0}, {"b", StoredType::boolean, {7}, 0, 0}}, {}),
          file_of({}, {})};
}

std::vector<std::string> dictionary() {
  return {"\"dtype\"",
          "\"shape\"",
          "\"data_offsets\"",
          "\"__metadata__\"",
          "\"F32\"",
          "\"F64\"",
          "[0,0]",
          "[]",
          "{}",
          ",",
          "4294967296",
          "18446744073709551615",
          "-1",
          std::string(8, '\0'),
          std::string(8, '\xff')};
}

}  // namespace stowage::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stowage;
  const auto header =
      fuzz::parsed_or_refused([&] { return parse_safetensors(fuzz::text_of(data, size), size, "input"); });
  if (!header) return 0;
  if (header->file_bytes() != size) fuzz::broken("bytes of the file that belong to no tensor");
  Bytes end = 0;
  for (const StoredTensor& tensor : header->tensors) {
    Bytes bytes = size_of(tensor.type);
    for (const std::int64_t extent : tensor.shape)
      if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<Bytes>(extent), &bytes))
        fuzz::broken("a shape that overflows");
    if (tensor.offset != end || tensor.bytes != bytes) fuzz::broken("a hole, an overlap or another size");
    end += bytes;
  }
  fuzz::check_round_trip(
      *header, [](SafetensorsHeader of) { return safetensors_beginning(of); },
      [&](const std::string& text) { return parse_safetensors(text, text.size() + end, "written"); });
  return 0;
}
