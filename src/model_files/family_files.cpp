#include "src/model_files/family_files.h"

#include <algorithm>
#include <array>

namespace stowage {

std::span<const FamilyFiles* const> all_family_files() {
  static const std::array all = {&gpt_files(),     &bert_files(),  &llama_files(),
                                 &mistral_files(), &qwen2_files(), &qwen3_files()};
  return all;
}

const FamilyFiles& files_of(const ModelFamily& family) {
  const auto all = all_family_files();
  return **std::find_if(all.begin(), all.end(),
                        [&](const FamilyFiles* files) { return files->family == &family; });
}

std::string titles_of_families() {
  std::string titles;
  const auto all = all_family_files();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i > 0) titles += i + 1 < all.size() ? ", " : " or ";
    titles += all[i]->family->title;
  }
  return titles;
}

}  // namespace stowage
