// Model files of Hugging Face: `config.json` with safetensors, in its own names and layouts, for GPT-2
// (GPT2LMHeadModel), BERT (BertForPreTraining), Llama, Mistral, Qwen2 and Qwen3 (…ForCausalLM).
//
// Parameters are those of models.h. Differences of a file are mapped on the way, piece by piece:
//   GPT-2: names with or without "transformer."; weights are [in, out] on both sides. Mask buffers
//          (`h.N.attn.bias`, `h.N.attn.masked_bias`) are passed over; `lm_head.weight`, where it is there,
//          must have the bytes of `wte.weight`.
//   BERT:  names with or without "bert."; `LayerNorm.gamma` and `.beta` for `.weight` and `.bias`. Weights of
//          linear ops are [out, in] in files; query, key and value are three tensors there and may be one
//          (`self.query_key_value`, side by side) here. `cls.predictions.decoder.{weight,bias}` are tied, and
//          are checked where they are there.
//   Llama, Mistral, Qwen2, Qwen3: names with or without "model."; weights are [out, in] on both sides.
//          `q_proj`, `k_proj` and `v_proj` are rows of one parameter here; `embed_tokens.weight` and
//          `lm_head.weight` may be several, blocks of rows. `rotary_emb.inv_freq` is passed
//          over. `lm_head.weight` of a tied model, where it is there, must have the bytes of
//          `embed_tokens.weight`; that of another one must be there.
// Rows of the vocabulary beyond the file's are padding: zero when read, left out when written. The first
// positions are read, and the file's others can be written as they were (SaveOptions::beyond); a file with
// fewer positions than the graph is refused.
//
// Element types of files: F16, BF16, F32 and F64; values are rounded to the parameter's type. Parameters in
// bf16 and f16 are read with their f32 master weight (the missing bits go into the optimizer's `.low`) and
// written as F32, or in the type that SaveOptions::type asks for, so a model that was read is written with
// the same bytes. No tensor is ever held twice as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/bytes.h"
#include "stowage/graph.h"
#include "stowage/models.h"
#include "stowage/safetensors.h"

namespace stowage {

// The parts of a config.json that Stowage computes with.
struct ModelDescription {
  const ModelFamily* family = &gpt_family;
  // The sizes, dropouts and epsilon. `sequence` is the longest that the model takes, the rows of its table of
  // positions; the vocabulary is not padded. A BERT has its pre-training heads.
  ModelConfig config{};
  // Ids that are only passed on to the next config.json; nothing here depends on them.
  std::optional<std::int64_t> begin_token{}, end_token{}, padding_token{};
  // The config.json that was read: its other fields are passed on to the next one. Empty: there is none.
  std::string source{};
  // Compares everything but the source.
  friend bool operator==(const ModelDescription& a, const ModelDescription& b) {
    return a.family == b.family && a.config == b.config && a.begin_token == b.begin_token &&
           a.end_token == b.end_token && a.padding_token == b.padding_token;
  }
};

// Throws InvalidInput that begins with `file` and names the field, its value and what is supported.
ModelDescription model_description_from_json(std::string_view text, std::string_view file = "config.json");
// Returns config.json as transformers writes it, which reads it without a warning. A model with a source has
// its text, with only the fields changed that differ from the model; GPT-2 and BERT are always written anew.
// Throws InvalidInput for windows that config.json cannot say.
std::string to_json(const ModelDescription& model);
// Reads config.json in the folder `path`, or beside the file `path`. Throws InvalidInput.
ModelDescription read_model_description(const std::string& path);

// Access to a graph's parameters, wherever they live: the calls of Engine of the same names.
struct ParameterAccess {
  using FillPiece = std::function<void(Bytes offset, std::span<std::byte> piece)>;
  std::function<void(TensorId, const FillPiece&)> fill;
  std::function<void(TensorId, Bytes offset, std::span<const std::byte>)> write;
  std::function<void(TensorId, Bytes offset, std::span<std::byte>)> read;
};

// `engine` must outlive it.
template <class EngineType>
ParameterAccess access_to(EngineType& engine) {
  return {[&engine](TensorId id, const ParameterAccess::FillPiece& piece) { engine.fill(id, piece); },
          [&engine](TensorId id, Bytes offset, std::span<const std::byte> value) {
            engine.write(id, offset, value);
          },
          [&engine](TensorId id, Bytes offset, std::span<std::byte> into) { engine.read(id, offset, into); }};
}

// Parameters that the files lack. Only BERT's pooler and heads (`cls.`) may be missing, as in files of an
// encoder alone.
using MissingParameters = std::vector<std::string>;

// Checks by the headers alone that the files have the tables and the layers that `model` asks for. Call it
// before a graph is built for sizes out of a file. Throws InvalidInput naming the tensor.
void check_sizes(const TensorFiles& files, const ModelDescription& model);

// Checks by the headers alone that the files hold the graph's model: every tensor that it needs, of its shape
// and of a type that can be read, and no tensor without a place. Throws InvalidInput naming the tensor.
MissingParameters check_model(const TensorFiles& files, const ModelDescription& model, const Graph& graph);

// Same as check_model; then reads every parameter that is there, by its offset, to where it lives. Missing
// ones keep their values. Errors of the files are thrown before anything is written, except tied tensors that
// differ and files that shrink.
MissingParameters load_model(const TensorFiles& files, const ModelDescription& model, const Graph& graph,
                             const ParameterAccess& parameters);

class Temporary;

// A folder that appears whole or not at all: until `commit` its files are under a temporary name beside it
// (`path`).
class ExportFolder {
 public:
  // Throws InvalidInput if `folder` exists and is not an empty folder, or cannot be made.
  explicit ExportFolder(std::string folder);
  ~ExportFolder();  // removes the folder unless it was committed
  ExportFolder(const ExportFolder&) = delete;
  ExportFolder& operator=(const ExportFolder&) = delete;

  const std::string& path() const;  // folder to write into
  // Flushes the folder to the disk and gives it its name. Throws Error.
  void commit();

 private:
  std::string folder_;
  std::unique_ptr<Temporary> temporary_;
};

// Element types that save_model writes, each value rounded to the nearest, ties to even.
enum class SavedType : std::uint8_t {
  usual,    // as_read with a source; otherwise the graph's type, and f32 for parameters in bf16 and f16
  as_read,  // of each tensor the type in the source; the usual type where the source has no such tensor
  bf16,
  f32
};

struct SaveOptions {
  // More bytes than this are written as several files with an index. A tensor is never cut. Not used with a
  // source, whose division into files is kept.
  Bytes shard_bytes = 5'000'000'000;
  SavedType type = SavedType::usual;
  // The files from which the model was read. Tensors go into files of the same names and in the same order,
  // and what is no parameter is copied: without training every file gets the same bytes. Must outlive the
  // call.
  const TensorFiles* source = nullptr;
  // The files from which the model was read, if it has more positions than the graph: the other rows are
  // copied from them. Not set: `source`. Must outlive the call.
  const TensorFiles* beyond = nullptr;
};

// Writes config.json and the parameters, which `model` describes, into `folder`, each file on the disk when
// it returns. The field of config.json that names the type follows a type that was asked for. Throws
// InvalidInput for a graph or a source of another model, for as_read without a source, and for positions that
// neither the graph nor `options.beyond` has; Error when writing fails.
void save_model(const std::string& folder, const ModelDescription& model, const Graph& graph,
                const ParameterAccess& parameters, const SaveOptions& options = {});

}  // namespace stowage
