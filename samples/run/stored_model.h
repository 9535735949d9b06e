// A trained model in host memory, read from a checkpoint or from model files.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "samples/options/options.h"
#include "samples/task/task.h"
#include "stowage/checkpoint.h"

namespace stowage::samples {

struct StoredModel {
  const ModelFamily* family = &gpt_family;
  ModelConfig sizes;
  std::string tokenizer;  // fingerprint of the tokenizer; empty: tokens are bytes, or not known
  bool knows_tokenizer = false;
  std::map<std::string, std::vector<std::byte>> parameters;  // f32 values by name
};

// Returns the family in a checkpoint's configuration. Throws InvalidInput for one that writes no text.
const ModelFamily& family_in(const CheckpointState& state, const std::string& folder);

// Returns the sizes in a checkpoint's configuration. Throws InvalidInput naming a field that is missing or no
// size.
ModelConfig sizes_in(const CheckpointState& state, const std::string& folder);

// Returns the type of a checkpoint's moments: f32 if it does not say. Throws InvalidInput naming the field.
Moments moments_in(const CheckpointState& state, const std::string& folder);

// Returns the model of --init, of the checkpoint --resume PATH, or of the newest in --checkpoint DIR. Throws
// InvalidInput naming the flag.
StoredModel read_stored_model(const Options& options);

// Sets what the options leave out without --data: the sizes, dropout and type of the model in the checkpoint
// of --resume, and with --init of another --sequence this one. Reads state.json alone. Throws InvalidInput
// naming the flag.
void take_stored_model(Options& options);

// Returns bf16 or f16 values as f32.
std::vector<std::byte> widened(DataType type, std::span<const std::byte> narrow);

}  // namespace stowage::samples
