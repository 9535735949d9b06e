#include "tools/choices/published_models.h"

#include <fmt/format.h>

#include <array>

namespace stowage {
namespace {

// A row of a model's card.
struct Published {
  std::string_view name;
  const ModelFamily* family;
  std::int64_t layers, width, heads, key_heads, head_width, inner, vocabulary;
  bool tied;
  double scaling;  // factor of the rotary scaling; 0: none
};

constexpr std::array<Published, 14> models = {
    {{"llama3.2-1b", &llama_family, 16, 2048, 32, 8, 64, 8192, 128256, true, 32},
     {"llama3.2-3b", &llama_family, 28, 3072, 24, 8, 128, 8192, 128256, true, 32},
     {"llama3-8b", &llama_family, 32, 4096, 32, 8, 128, 14336, 128256, false, 0},
     {"mistral-7b", &mistral_family, 32, 4096, 32, 8, 128, 14336, 32768, false, 0},
     {"qwen2.5-0.5b", &qwen2_family, 24, 896, 14, 2, 64, 4864, 151936, true, 0},
     {"qwen2.5-1.5b", &qwen2_family, 28, 1536, 12, 2, 128, 8960, 151936, true, 0},
     {"qwen2.5-3b", &qwen2_family, 36, 2048, 16, 2, 128, 11008, 151936, true, 0},
     {"qwen2.5-7b", &qwen2_family, 28, 3584, 28, 4, 128, 18944, 152064, false, 0},
     {"qwen2.5-14b", &qwen2_family, 48, 5120, 40, 8, 128, 13824, 152064, false, 0},
     {"qwen3-0.6b", &qwen3_family, 28, 1024, 16, 8, 128, 3072, 151936, true, 0},
     {"qwen3-1.7b", &qwen3_family, 28, 2048, 16, 8, 128, 6144, 151936, true, 0},
     {"qwen3-4b", &qwen3_family, 36, 2560, 32, 8, 128, 9728, 151936, true, 0},
     {"qwen3-8b", &qwen3_family, 36, 4096, 32, 8, 128, 12288, 151936, false, 0},
     {"qwen3-14b", &qwen3_family, 40, 5120, 40, 8, 128, 17408, 151936, false, 0}}};

ModelConfig config_of(const Published& model) {
  ModelConfig config = model.family->defaults;
  config.layers = model.layers;
  config.width = model.width;
  config.heads = model.heads;
  config.key_heads = model.key_heads;
  config.head_width = model.head_width;
  config.inner = model.inner;
  config.vocabulary = model.vocabulary;
  config.tied = model.tied;
  config.rotary_scaling = {};
  if (model.scaling > 0) config.rotary_scaling = nn::RotaryScaling{.factor = model.scaling};
  return config;
}

}  // namespace

std::optional<NamedModel> published_model(std::string_view name) {
  for (const Published& model : models)
    if (model.name == name) return NamedModel{model.family, config_of(model)};
  return {};
}

std::string published_names() {
  std::string names;
  for (const Published& model : models) names += fmt::format("{}{}", names.empty() ? "" : ", ", model.name);
  return names;
}

}  // namespace stowage
