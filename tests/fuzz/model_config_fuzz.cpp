// config.json of a model: `--init`.
#include "stowage/model_files.h"
#include "tests/fuzz/target.h"

namespace stowage::fuzz {

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (const ModelFamily* family : model_families()) {
    ModelDescription model{.family = family, .config = family->defaults};
    model.config.layers = 2;
    model.end_token = 50256;
    all.push_back(to_json(model));
  }
  return all;
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
  const ModelConfig& config = model->config;
  if (config.layers < 1 || config.width < 1 || config.heads < 1 || config.width % config.heads != 0)
    fuzz::broken("sizes that no model has");
  fuzz::check_round_trip(
      *model, [](const ModelDescription& of) { return to_json(of); },
      [](const std::string& text) { return model_description_from_json(text, "written"); });
  return 0;
}
