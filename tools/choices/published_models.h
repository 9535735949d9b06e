// The sizes of models that Hugging Face publishes, by the names of their cards; their weights are not here.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "stowage/models.h"

namespace stowage {

struct NamedModel {
  const ModelFamily* family = nullptr;
  // `sequence`: ModelFamily::defaults, which may be shorter than what the model takes.
  ModelConfig config{};
};

// Returns nothing for a name that is none of published_names().
std::optional<NamedModel> published_model(std::string_view name);

// Returns the names, with commas between them.
std::string published_names();

}  // namespace stowage
