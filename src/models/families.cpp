#include <array>

#include "stowage/models.h"

namespace stowage {

std::span<const ModelFamily* const> model_families() {
  static constexpr std::array families = {&gpt_family,     &bert_family,  &llama_family,
                                          &mistral_family, &qwen2_family, &qwen3_family};
  return families;
}

const ModelFamily* find_model_family(std::string_view name) {
  for (const ModelFamily* family : model_families())
    if (family->name == name) return family;
  return nullptr;
}

}  // namespace stowage
