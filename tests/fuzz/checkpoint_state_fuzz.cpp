// state.json of checkpoints: as it is, and with a right checksum over it, without which hardly any would be
// read.
#include "src/checkpoint/checkpoint_tensors.h"
#include "src/checkpoint/state_json.h"
#include "tests/fuzz/target.h"

namespace stowage::fuzz {
namespace {

std::string body_of(std::vector<CheckpointTensor> tensors) {
  CheckpointState state{120, 7, {{"sample", 3}}, {{"model.layers", "2"}}, std::move(tensors)};
  std::string text = state_to_json(state);
  return text.substr(0, text.rfind(",\"checksum\""));
}

void check(const CheckpointState& state) {
  Bytes end = 0;
  for (const CheckpointTensor& tensor : state.tensors) {
    if (tensor.offset != end || value_bytes(tensor.type, tensor.shape) != tensor.bytes)
      broken("a hole, an overlap or another size");
    const std::optional<Bytes> next = next_offset(tensor);
    if (!next || *next % checkpoint_alignment != 0 || *next < end) broken("an end that overflows");
    end = *next;
  }
  if (checkpoint_bytes(state.tensors) != end) broken("another size of the file");
  check_round_trip(state, state_to_json,
                   [](const std::string& text) { return state_from_json(text, "written"); });
}

}  // namespace

std::vector<std::string> seeds() {
  const std::string digits(32, '0');
  return {body_of({{"w", TensorKind::parameter, DataType::bf16, {5, 3}, 0, 30, digits},
                   {"w.low", TensorKind::optimizer_state, DataType::i16, {5, 3}, 64, 30, digits},
                   {"none", TensorKind::optimizer_state, DataType::f64, {0}, 128, 0, digits}}),
          body_of({}), state_to_json({})};
}

std::vector<std::string> dictionary() {
  return {"\"shape\"",     "\"offset\"", "\"bytes\"", "\"checksum\"",         "\"kind\"",
          "\"type\"",      "\"f32\"",    "\"i16\"",   "\"optimizer_state\"",  "\"parameter\"",
          "4294967296",    "-1",         "[]",        "9223372036854775807",  "9223372036854775744",
          "\"seed\":\"\"", "{}",         "64",        "18446744073709551615", ","};
}

}  // namespace stowage::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stowage;
  const std::string text(fuzz::text_of(data, size));
  for (const std::string& given : {text, sealed(text)}) {
    const auto state = fuzz::parsed_or_refused([&] { return state_from_json(given, "input"); });
    if (state) fuzz::check(*state);
  }
  return 0;
}
