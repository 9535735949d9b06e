// A trained model in a checkpoint or in model files, to be read without a device.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "samples/options/options.h"
#include "samples/task/model_weights.h"
#include "stowage/checkpoint.h"

namespace stowage::samples {

// The model of --init, of the checkpoint --resume PATH, or of the newest in --checkpoint DIR.
class StoredModel {
 public:
  // Reads the description alone, and checks the bytes of a checkpoint. `options` must outlive this. Throws
  // InvalidInput naming the flag.
  explicit StoredModel(const Options& options);

  const ModelFamily& family() const { return *family_; }
  const ModelConfig& sizes() const { return sizes_; }
  DataType type() const { return type_; }  // type in which it computes
  // Returns the fingerprint of its tokenizer, "" if its tokens are bytes or were shards'; nothing if it does
  // not say.
  std::optional<std::string> tokenizer() const;

  // Reads the parameters. `weights`: those of a model of this family, these sizes and this type. Throws
  // InvalidInput naming the flag.
  void load(ModelWeights& weights) const;

 private:
  const Options& options_;
  std::optional<Checkpoint> checkpoint_;  // not set: the model of --init
  const ModelFamily* family_;
  ModelConfig sizes_;
  DataType type_;
};

// Returns the family in a checkpoint's configuration. Throws InvalidInput for one that writes no text.
const ModelFamily& family_in(const CheckpointState& state, const std::string& folder);

// Returns the sizes in a checkpoint's configuration. Throws InvalidInput naming a field that is missing or no
// size.
ModelConfig sizes_in(const CheckpointState& state, const std::string& folder);

// Returns the type of a checkpoint's moments: f32 if it does not say. Throws InvalidInput naming the field.
Moments moments_in(const CheckpointState& state, const std::string& folder);

// Sets what the options leave out without --data: the sizes, dropout and type of the model in the checkpoint
// of --resume, and with --init of another --sequence this one. Reads state.json alone. Throws InvalidInput
// naming the flag.
void take_stored_model(Options& options);

// Returns bf16 or f16 values as f32.
std::vector<std::byte> widened(DataType type, std::span<const std::byte> narrow);

}  // namespace stowage::samples
