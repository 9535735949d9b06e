// The fields of config.json that Llama, Mistral, Qwen2 and Qwen3 have beside the sizes of every family.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "stowage/models.h"

namespace stowage {

class JsonField;

void read_llama_config(const JsonField& root, ModelConfig& config);
void read_mistral_config(const JsonField& root, ModelConfig& config);
void read_qwen2_config(const JsonField& root, ModelConfig& config);
void read_qwen3_config(const JsonField& root, ModelConfig& config);

// Throw InvalidInput for windows that the family's fields cannot say.
void write_llama_config(const ModelConfig& config, nlohmann::json& json);
void write_mistral_config(const ModelConfig& config, nlohmann::json& json);
void write_qwen2_config(const ModelConfig& config, nlohmann::json& json);
void write_qwen3_config(const ModelConfig& config, nlohmann::json& json);

}  // namespace stowage
