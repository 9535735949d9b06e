// config.json of a model: `--init`.
#include "stowage/model_files.h"
#include "tests/fuzz/target.h"

namespace stowage::fuzz {

std::vector<std::string> seeds() {
  ModelDescription gpt{.layers = 2, .width = 8, .heads = 2, .vocabulary = 256, .positions = 32};
  gpt.end_token = 50256;
  ModelDescription bert = gpt;
  bert.kind = ModelKind::bert;
  return {to_json(gpt), to_json(bert)};
}

std::vector<std::string> dictionary() {
  return {"\"gpt2\"",
          "\"bert\"",
          "\"n_layer\"",
          "\"hidden_size\"",
          "null",
          "true",
          "0",
          "-1",
          "1e308",
          "9223372036854775807",
          "0.1",
          "{}",
          "[]",
          "\"n_inner\": null,",
          "\"is_decoder\": true,"};
}

}  // namespace stowage::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stowage;
  const auto model = fuzz::parsed_or_refused(
      [&] { return model_description_from_json(fuzz::text_of(data, size), "input"); });
  if (!model) return 0;
  if (model->layers < 1 || model->width < 1 || model->heads < 1 || model->width % model->heads != 0)
    fuzz::broken("sizes that no model has");
  fuzz::check_round_trip(
      *model, [](const ModelDescription& of) { return to_json(of); },
      [](const std::string& text) { return model_description_from_json(text, "written"); });
  fuzz::parsed_or_refused([&] {
    return model->kind == ModelKind::gpt2 ? gpt_config(*model).layers : bert_config(*model).layers;
  });
  return 0;
}
