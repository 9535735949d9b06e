// Names follow the checkpoints that Hugging Face publishes, without their "model." prefix. Weights of linear
// ops are [out, in], and the weights of queries, keys and values are rows of one parameter.
#include <fmt/format.h>

#include <vector>

#include "src/models/require_valid.h"
#include "src/models/table_blocks.h"
#include "stowage/models.h"
#include "stowage/nn.h"

namespace stowage {
namespace {

constexpr double llama_deviation = 0.02;
constexpr std::int64_t usual_table_rows = 16384;

// Builds ops with the parameters of the same name, which begins with the layer's prefix: "layers.3.".
struct LlamaLayers {
  GraphBuilder& builder;
  const ModelConfig& config;
  BuiltModel& model;

  std::int64_t window(std::int64_t layer) const {
    return config.windows.empty() ? 0 : config.windows[static_cast<std::size_t>(layer)];
  }
  std::int64_t head_width() const { return width_of_head(config); }
  std::int64_t inner() const { return width_of_mlp(config); }
  std::int64_t key_heads() const { return heads_of_keys(config); }

  Value gain(const std::string& name, std::int64_t width) const {
    return builder.parameter(name + ".weight", {width}, {1, 0});
  }
  Value norm(const std::string& name, Value x) const {
    return nn::rms_norm(builder, name, x, gain(name, config.width), config.epsilon);
  }
  Value linear(const std::string& name, Value x, std::int64_t in, std::int64_t out,
               bool has_bias = false) const {
    Value weight = builder.parameter(name + ".weight", {out, in}, {0, llama_deviation});
    Value bias = has_bias ? builder.parameter(name + ".bias", {out}, {0, 0}) : Value{};
    return nn::linear(builder, name, x, weight, bias, true);
  }

  Value turned(const std::string& name, Value qkv) const {
    nn::RotaryOptions options{.heads = config.heads,
                              .key_heads = key_heads(),
                              .sequence = config.sequence,
                              .theta = config.rotary_theta,
                              .scaling = config.rotary_scaling,
                              .epsilon = config.epsilon,
                              .begins = model.begins};
    if (config.head_norms) {
      options.query_gain = gain(name + ".q_norm", head_width());
      options.key_gain = gain(name + ".k_norm", head_width());
    }
    return nn::rotary(builder, name + ".rotary", qkv, options);
  }

  Value attention(std::int64_t layer, const std::string& prefix, std::uint32_t part, Value x) const {
    const std::string name = prefix + "self_attn";
    builder.begin_unit(prefix + "attention", part);
    Value y = norm(prefix + "input_layernorm", x);
    y = linear(name + ".qkv_proj", y, config.width, (config.heads + 2 * key_heads()) * head_width(),
               config.attention_bias);
    y = nn::attention(builder, name, turned(name, y),
                      {.heads = config.heads,
                       .sequence = config.sequence,
                       .causal = true,
                       .dropout = config.attention_dropout.value_or(config.dropout),
                       .key_heads = key_heads(),
                       .window = window(layer),
                       .begins = model.begins});
    y = linear(name + ".o_proj", y, config.heads * head_width(), config.width);
    return nn::add(builder, name + ".residual", x, y);
  }

  Value mlp(const std::string& prefix, std::uint32_t part, Value x) const {
    const std::string name = prefix + "mlp";
    builder.begin_unit(name, part);
    Value y = norm(prefix + "post_attention_layernorm", x);
    Value gate = linear(name + ".gate_proj", y, config.width, inner());
    Value up = linear(name + ".up_proj", y, config.width, inner());
    y = linear(name + ".down_proj", nn::swiglu(builder, name, gate, up), inner(), config.width);
    return nn::add(builder, name + ".residual", x, y);
  }

  // Returns the blocks of a table with a row for each token; one, of its name, if it is whole.
  std::vector<nn::TableBlock> table(const std::string& name) const {
    const std::int64_t rows = rows_of_vocabulary(config), block = rows_of_block(config);
    std::vector<nn::TableBlock> blocks;
    // Padding alone makes no block.
    for (std::int64_t first = 0; first < config.vocabulary; first += block) {
      const bool last = first + block >= config.vocabulary;
      blocks.push_back({builder.parameter(block == rows ? name : name_of_block(name, first),
                                          {last ? rows - first : block, config.width}, {0, llama_deviation}),
                        first, config.vocabulary});
    }
    return blocks;
  }

  // Returns the embeddings of each micro-batch.
  std::vector<Value> embedding(const std::vector<nn::TableBlock>& blocks) const {
    std::vector<Value> x(builder.micro_batch().count);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const std::string name = blocks.size() == 1 ? "embedding" : fmt::format("embedding.{}", i);
      for (std::uint32_t part = 0; part < x.size(); ++part) {
        builder.begin_unit(name, part);
        x[part] = blocks.size() == 1
                      ? nn::embedding(builder, name, model.tokens, blocks[i].rows, {}, config.sequence)
                      : nn::embedding_rows(builder, name, model.tokens, blocks[i], x[part]);
      }
    }
    return x;
  }

  // Returns the loss; sets the logits if the full tensor exists.
  Value whole_head(const std::vector<Value>& trunk, Value weight) const {
    const std::int64_t chunk = head_tokens(config, builder.work_type());
    Value loss;
    for (std::uint32_t part = 0; part < trunk.size(); ++part) {
      builder.begin_unit("head", part);
      const Value x = norm("norm", trunk[part]);
      if (chunk > 0) {
        loss =
            nn::linear_cross_entropy(builder, "loss", x, weight, model.targets,
                                     {.transposed = true, .chunk = chunk, .vocabulary = config.vocabulary});
      } else {
        model.logits = nn::linear(builder, "head", x, weight, {}, true);
        loss = nn::cross_entropy(builder, "loss", model.logits, model.targets, config.vocabulary);
      }
      loss = builder.sum_loss(loss);
    }
    return loss;
  }

  // Each block's unit computes all micro-batches, so that the block comes to the device once for all of them.
  Value head_in_blocks(std::vector<Value> x, const std::vector<nn::TableBlock>& blocks) const {
    std::vector<Value> statistics(x.size());
    Value loss;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const std::string name = fmt::format("head.{}", i);
      for (std::uint32_t part = 0; part < x.size(); ++part) {
        builder.begin_unit(name, part);
        if (i == 0) x[part] = norm("norm", x[part]);
        statistics[part] =
            nn::head_statistics(builder, name, x[part], blocks[i], model.targets, statistics[part]);
        if (i + 1 == blocks.size())
          loss = builder.sum_loss(nn::head_loss(builder, "loss", statistics[part], model.targets));
      }
    }
    return loss;
  }
};

BuiltModel inputs_of_llama(GraphBuilder& builder, const ModelConfig& config) {
  const std::int64_t tokens = config.batch * config.sequence;
  const auto vocabulary = static_cast<std::int32_t>(config.vocabulary);
  BuiltModel model;
  model.tokens = builder.input("tokens", {tokens});
  model.targets = builder.input("targets", {tokens});
  model.inputs = {{model.tokens, vocabulary}, {model.targets, vocabulary}};
  if (!config.packed) return model;
  model.begins = builder.input("begins", {tokens});
  model.inputs.push_back({model.begins});  // made-up batches have one document a sample
  return model;
}

}  // namespace

BuiltModel llama(GraphBuilder& builder, const ModelConfig& config) {
  require_valid("llama", config);
  set_up(builder, config);
  const std::uint32_t parts = builder.micro_batch().count;
  BuiltModel model = inputs_of_llama(builder, config);
  const LlamaLayers layers{builder, config, model};
  const std::vector<nn::TableBlock> embedding = layers.table("embed_tokens.weight");
  const std::vector<nn::TableBlock> head = config.tied ? embedding : layers.table("lm_head.weight");
  std::vector<Value> x = layers.embedding(embedding);
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string prefix = fmt::format("layers.{}.", i);
    for (std::uint32_t part = 0; part < parts; ++part) x[part] = layers.attention(i, prefix, part, x[part]);
    for (std::uint32_t part = 0; part < parts; ++part) x[part] = layers.mlp(prefix, part, x[part]);
  }
  model.loss = head.size() == 1 ? layers.whole_head(x, head.front().rows) : layers.head_in_blocks(x, head);
  if (config.micro_batches > 1) model.logits = {};
  return model;
}

// Sizes of Llama 3.2 1B.
constinit const ModelFamily llama_family{.name = "llama",
                                         .title = "Llama",
                                         .generates = true,
                                         .learned_positions = false,
                                         .defaults = {.layers = 16,
                                                      .width = 2048,
                                                      .heads = 32,
                                                      .vocabulary = 128256,
                                                      .sequence = 4096,
                                                      .batch = 1,
                                                      .key_heads = 8,
                                                      .head_width = 64,
                                                      .inner = 8192,
                                                      .rotary_theta = 500000,
                                                      .rotary_scaling = nn::RotaryScaling{.factor = 32},
                                                      .table_rows = usual_table_rows},
                                         .build = llama};

// Sizes of Mistral 7B, version 0.3.
constinit const ModelFamily mistral_family{.name = "mistral",
                                           .title = "Mistral",
                                           .generates = true,
                                           .learned_positions = false,
                                           .defaults = {.layers = 32,
                                                        .width = 4096,
                                                        .heads = 32,
                                                        .vocabulary = 32768,
                                                        .sequence = 4096,
                                                        .batch = 1,
                                                        .key_heads = 8,
                                                        .head_width = 128,
                                                        .inner = 14336,
                                                        .tied = false,
                                                        .rotary_theta = 1000000,
                                                        .table_rows = usual_table_rows},
                                           .build = llama};

// Sizes of Qwen 2.5 0.5B.
constinit const ModelFamily qwen2_family{.name = "qwen2",
                                         .title = "Qwen2",
                                         .generates = true,
                                         .learned_positions = false,
                                         .defaults = {.layers = 24,
                                                      .width = 896,
                                                      .heads = 14,
                                                      .vocabulary = 151936,
                                                      .sequence = 4096,
                                                      .batch = 1,
                                                      .epsilon = 1e-6,
                                                      .key_heads = 2,
                                                      .head_width = 64,
                                                      .inner = 4864,
                                                      .attention_bias = true,
                                                      .rotary_theta = 1000000,
                                                      .table_rows = usual_table_rows},
                                         .build = llama};

// Sizes of Qwen 3 0.6B.
constinit const ModelFamily qwen3_family{.name = "qwen3",
                                         .title = "Qwen3",
                                         .generates = true,
                                         .learned_positions = false,
                                         .defaults = {.layers = 28,
                                                      .width = 1024,
                                                      .heads = 16,
                                                      .vocabulary = 151936,
                                                      .sequence = 4096,
                                                      .batch = 1,
                                                      .epsilon = 1e-6,
                                                      .key_heads = 8,
                                                      .head_width = 128,
                                                      .inner = 3072,
                                                      .head_norms = true,
                                                      .rotary_theta = 1000000,
                                                      .table_rows = usual_table_rows},
                                         .build = llama};

}  // namespace stowage
