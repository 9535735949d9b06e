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
  ModelDescription windows{.family = &qwen2_family, .config = qwen2_family.defaults};
  windows.config.layers = 3;
  windows.config.windows = {0, 9, 0};
  all.push_back(to_json(windows));
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
          "\"is_decoder\": true,",
          "\"llama\"",
          "\"mistral\"",
          "\"qwen2\"",
          "\"qwen3\"",
          "\"head_dim\": 64,",
          "\"num_key_value_heads\": 2,",
          "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1},",
          "\"rope_scaling\": null,",
          "\"llama3\"",
          "\"layer_types\": [",
          "\"full_attention\",",
          "\"sliding_attention\",",
          "\"sliding_window\": 9,",
          "\"use_sliding_window\": true,",
          "\"max_window_layers\": 1,",
          "NaN"};
}

}  // namespace stowage::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stowage;
  const auto model = fuzz::parsed_or_refused(
      [&] { return model_description_from_json(fuzz::text_of(data, size), "input"); });
  if (!model) return 0;
  const ModelConfig& config = model->config;
  const std::int64_t head_width = config.head_width;
  if (config.layers < 1 || config.width < 1 || config.heads < 1 ||
      (head_width == 0 ? config.width % config.heads != 0 : head_width % 2 != 0))
    fuzz::broken("sizes that no model has");
  if (config.key_heads != 0 && config.heads % config.key_heads != 0)
    fuzz::broken("heads of keys that no model has");
  const auto write = [](const ModelDescription& of) { return to_json(of); };
  const auto read = [](const std::string& text) { return model_description_from_json(text, "written"); };
  fuzz::check_round_trip(*model, write, read);
  // Written anew, and with a change.
  ModelDescription other = *model;
  other.source.clear();
  if (!(read(write(other)) == *model)) fuzz::broken("written anew it differs");
  other = *model;
  other.config.vocabulary = other.config.vocabulary % 1000 + 1;
  if (!(read(write(other)) == other)) fuzz::broken("changed and written it differs");
  return 0;
}
