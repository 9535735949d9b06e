#include "tools/choices/model_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <utility>

#include "stowage/coded_activations.h"
#include "stowage/error.h"
#include "stowage/model_files.h"
#include "stowage/models.h"
#include "tools/choices/published_models.h"

namespace stowage {
namespace {

// Returns the parameters of the layers' matrices. If these parameters and the width rise, so does the size of
// the whole model, whatever its vocabulary.
constexpr std::int64_t parameters(const GptSize& size) { return size.layers * 12 * size.width * size.width; }

constexpr std::array<GptSize, 10> rungs = {{{"", 12, 768, 12},
                                            {"", 24, 1024, 16},
                                            {"", 24, 1536, 16},
                                            {"1.3b", 24, 2048, 16},
                                            {"2.7b", 32, 2560, 32},
                                            {"6.7b", 32, 4096, 32},
                                            {"13b", 40, 5120, 40},
                                            {"30b", 48, 7168, 56},
                                            {"66b", 64, 9216, 72},
                                            {"175b", 96, 12288, 96}}};

constexpr std::int64_t head_width = 64;
constexpr std::int64_t most_devices = 64;  // most devices that a machine's file may have

constexpr std::array<GptSize, 2> bert_sizes = {{{"base", 12, 768, 12}, {"large", 24, 1024, 16}}};

std::string names_of(const auto& sizes) {
  std::string names;
  for (const GptSize& size : sizes) names += fmt::format("{}{}", names.empty() ? "" : ", ", size.name);
  return names;
}

// LAYERSxWIDTH with `width / 64` heads, or one of the named sizes.
GptSize parse_size(const std::string& option, const std::string& text, const auto& sizes) {
  for (const GptSize& size : sizes) {
    if (size.name == text) return size;
  }
  const std::size_t x = text.find('x');
  if (x == 0 || x == std::string::npos || x + 1 == text.size() ||
      text.find_first_not_of("0123456789x") != std::string::npos)
    throw InvalidInput(fmt::format("{}: \"{}\" is no model; give LAYERSxWIDTH, such as 24x1024, or one of {}",
                                   option, text, names_of(sizes)));
  const std::string what = fmt::format("{} {}", option, text);
  GptSize size{"", parse_count(what + ": layers", text.substr(0, x), most_layers),
               parse_count(what + ": width", text.substr(x + 1), most_width), 0};
  size.heads = size.width / head_width;
  return size;
}

std::int64_t count_or(const std::string& option, const std::string& text, std::int64_t otherwise) {
  return text.empty() ? otherwise : parse_count(option, text);
}

DataType parse_type(const std::string& text, DataType otherwise) {
  if (text.empty()) return otherwise;
  if (text == "f32") return DataType::f32;
  if (text == "bf16") return DataType::bf16;
  if (text == "fp16") return DataType::f16;
  throw InvalidInput(fmt::format("--type: \"{}\" is no work type; give f32, bf16 or fp16", text));
}

std::optional<CodeBits> parse_coding(const std::string& text) {
  if (is_coding_word(text)) return bits_of_coding(text);
  if (text == "auto")
    throw InvalidInput(
        "--code-activations auto: `stowage plan` alone answers for all codes of a model; give off, 8 or 4");
  throw InvalidInput(
      fmt::format("--code-activations: \"{}\" are no codes of activations; give off, 8 or 4", text));
}

Moments parse_moments(const std::string& text) {
  if (const auto moments = moments_from(text)) return *moments;
  throw InvalidInput(fmt::format("--moments: \"{}\" is no type of moments; give f32, bf16 or 8bit", text));
}

void require_heads(const ModelConfig& config) {
  if (config.head_width > 0 || (config.heads > 0 && config.width % config.heads == 0)) return;
  if (config.heads == 0)
    throw InvalidInput(fmt::format(
        "width {} is smaller than a head of {}; give --heads, a divisor of the width, or a larger width",
        config.width, head_width));
  throw InvalidInput(
      fmt::format("width {} is not divisible by {} heads; give --heads, a divisor of the width", config.width,
                  config.heads));
}

void require_divisible(const ModelConfig& config) {
  if (config.batch % config.micro_batches != 0)
    throw InvalidInput(
        fmt::format("--micro-batches {} does not divide the batch of {}; give a divisor, or change --batch",
                    config.micro_batches, config.batch));
  if (!are_gradient_groups(static_cast<std::uint32_t>(config.gradient_groups),
                           static_cast<std::uint32_t>(config.micro_batches)))
    throw InvalidInput(fmt::format(
        "--gradient-groups {} is no power of two that divides --micro-batches {}; give one, at most {}",
        config.gradient_groups, config.micro_batches, config.micro_batches & -config.micro_batches));
}

// Throws InvalidInput unless each device has an equal part of the batch, in whole gradient groups.
void require_parts(const ModelConfig& config) {
  const std::int64_t devices = config.ranks;
  if ((devices & (devices - 1)) != 0)
    throw InvalidInput(fmt::format(
        "--devices {} is no power of two, as the tree of gradient groups needs it; give 1, 2, 4, …",
        devices));
  const auto require = [&](const char* what, const char* option, std::int64_t count) {
    if (count % devices != 0)
      throw InvalidInput(fmt::format("--devices {} does not divide {} {}; give {}, a multiple of {}", devices,
                                     count, what, option, devices));
  };
  require("samples", "--batch", config.batch);
  require("micro-batches", "--micro-batches", config.micro_batches);
  require("gradient groups", "--gradient-groups", config.gradient_groups);
}

std::int64_t table_rows(const ModelFamily& family, const std::string& text) {
  if (family.defaults.table_rows == 0)
    throw InvalidInput(
        fmt::format("--table-rows {}: the tables of {} are whole; leave it out", text, family.title));
  return text == "0" ? 0 : parse_count("--table-rows (0: whole tables)", text);
}

double share_of_tokens(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value > 0 && value <= 1))
    throw InvalidInput(
        fmt::format("--keep-tokens: \"{}\" is no share of the tokens above 0 and at most 1", text));
  return value;
}

// Takes the sizes of the model from `model`, and those of the run from the words.
ModelSpec complete(const ModelFamily& family, const ModelConfig& model, const ModelWords& words,
                   DataType type) {
  ModelSpec spec{.family = &family, .config = model, .type = parse_type(words.type, type)};
  ModelConfig& config = spec.config;
  config.padded_vocabulary = padded_vocabulary(config.vocabulary);
  config.sequence = count_or("--sequence", words.sequence, config.sequence);
  config.batch = count_or("--batch", words.batch, config.batch);
  if (!words.head_chunk.empty()) config.head_tokens = parse_count("--head-chunk", words.head_chunk);
  if (!words.table_rows.empty()) config.table_rows = table_rows(family, words.table_rows);
  if (!words.keep_tokens.empty()) config.keep_tokens = share_of_tokens(words.keep_tokens);
  if (!words.devices.empty()) config.ranks = parse_count("--devices", words.devices, most_devices);
  config.gradient_groups = count_or("--gradient-groups", words.gradient_groups, config.ranks);
  config.micro_batches = count_or("--micro-batches", words.micro_batches,
                                  default_micro_batches(family, config.batch, config.gradient_groups));
  spec.clips = words.clips;
  if (!words.moments.empty()) spec.moments = parse_moments(words.moments);
  if (!words.code_activations.empty()) config.code_activations = parse_coding(words.code_activations);
  require_heads(config);
  require_parts(config);
  require_divisible(config);
  return spec;
}

ModelSpec complete(const ModelFamily& family, const GptSize& size, const ModelWords& words, DataType type) {
  ModelConfig config = family.defaults;
  config.layers = size.layers;
  config.width = size.width;
  config.heads = count_or("--heads", words.heads, size.heads);
  config.vocabulary = count_or("--vocabulary", words.vocabulary, config.vocabulary);
  return complete(family, config, words, type);
}

// Reads the model of a folder, without dropout, as a question about a model by its name is.
NamedModel model_at(const std::string& path) {
  ModelDescription found;
  try {
    found = read_model_description(path);
  } catch (const InvalidInput& error) {
    throw InvalidInput(fmt::format("--model {}", error.what()));
  }
  NamedModel model{found.family, found.config};
  model.config.batch = found.family->defaults.batch;
  model.config.dropout = 0;
  model.config.embedding_dropout = model.config.attention_dropout = model.config.residual_dropout = {};
  if (!found.family->learned_positions)
    model.config.sequence = std::min(found.config.sequence, found.family->defaults.sequence);
  return model;
}

ModelSpec named_spec(const ModelWords& words, DataType type) {
  for (const auto& [option, text] : {std::pair{"--heads", &words.heads}, {"--vocabulary", &words.vocabulary}})
    if (!text->empty())
      throw InvalidInput(
          fmt::format("{} {}: --model {} has its own; leave it out", option, *text, words.model));
  for (const GptSize& size : named_gpt_sizes())
    if (size.name == words.model) return complete(gpt_family, size, words, type);
  std::error_code error;
  std::optional<NamedModel> model = published_model(words.model);
  if (!model && std::filesystem::exists(words.model, error)) model = model_at(words.model);
  if (!model)
    throw InvalidInput(fmt::format("--model: \"{}\" is neither a folder with config.json nor one of {}, {}",
                                   words.model, published_names(), names_of(named_gpt_sizes())));
  return complete(*model->family, model->config, words, type);
}

void refuse_strays(const ModelWords& words) {
  for (const auto& [option, text] : std::array<std::pair<const char*, const std::string*>, 13>{
           {{"--heads", &words.heads},
            {"--sequence", &words.sequence},
            {"--batch", &words.batch},
            {"--micro-batches", &words.micro_batches},
            {"--gradient-groups", &words.gradient_groups},
            {"--vocabulary", &words.vocabulary},
            {"--type", &words.type},
            {"--head-chunk", &words.head_chunk},
            {"--table-rows", &words.table_rows},
            {"--keep-tokens", &words.keep_tokens},
            {"--moments", &words.moments},
            {"--code-activations", &words.code_activations},
            {"--devices", &words.devices}}}) {
    if (!text->empty())
      throw InvalidInput(fmt::format(
          "{} {}: a saved graph has its own; leave it out, or name a model with --model, --gpt or --bert",
          option, *text));
  }
}

}  // namespace

const std::vector<GptSize>& named_gpt_sizes() {
  static const std::vector<GptSize> sizes = [] {
    std::vector<GptSize> named = {{"gpt2", 12, 768, 12},
                                  {"gpt2-medium", 24, 1024, 16},
                                  {"gpt2-large", 36, 1280, 20},
                                  {"gpt2-xl", 48, 1600, 25}};
    std::copy_if(rungs.begin(), rungs.end(), std::back_inserter(named),
                 [](const GptSize& size) { return !size.name.empty(); });
    return named;
  }();
  return sizes;
}

std::vector<GptSize> gpt_ladder() {
  std::vector<GptSize> ladder;
  for (std::size_t i = 0; i + 1 < rungs.size(); ++i) {
    for (GptSize size = rungs[i]; parameters(size) < parameters(rungs[i + 1]); ++size.layers) {
      ladder.push_back(size);
      size.name = {};
    }
  }
  ladder.push_back(rungs.back());
  return ladder;
}

std::int64_t parse_count(const std::string& option, const std::string& text, std::int64_t most) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > most)
    throw InvalidInput(fmt::format("{}: \"{}\" is no whole number from 1 to {}", option, text, most));
  return value;
}

std::optional<ModelSpec> model_spec(const ModelWords& words, DataType type) {
  if ((words.gpt.empty() ? 0 : 1) + (words.bert.empty() ? 0 : 1) + (words.model.empty() ? 0 : 1) > 1)
    throw InvalidInput("--gpt, --bert and --model each name a model; give one of them");
  if (!words.model.empty()) return named_spec(words, type);
  if (!words.gpt.empty())
    return complete(gpt_family, parse_size("--gpt", words.gpt, named_gpt_sizes()), words, type);
  if (!words.bert.empty())
    return complete(bert_family, parse_size("--bert", words.bert, bert_sizes), words, type);
  refuse_strays(words);
  return {};
}

ModelSpec model_spec(const GptSize& size, const ModelWords& words, DataType type) {
  if (!words.heads.empty())
    throw InvalidInput(
        fmt::format("--heads {}: --max-model takes each size's own heads; leave it out", words.heads));
  return complete(gpt_family, size, words, type);
}

Graph build(const ModelSpec& spec, const ChunkGrid& grid) {
  GraphBuilder builder(spec.type);
  const Value loss = spec.family->build(builder, spec.config).loss;
  AdamW optimizer{.moments = spec.moments};
  optimizer.grid = grid;
  if (!spec.clips) optimizer.clip = 0;
  return builder.finish(loss, optimizer);
}

std::int64_t padded_vocabulary(std::int64_t tokens) {
  constexpr std::int64_t multiple = 64;
  return (tokens + multiple - 1) / multiple * multiple;
}

std::int64_t default_micro_batches(const ModelFamily& family, std::int64_t batch,
                                   std::int64_t gradient_groups) {
  const bool halves = &family == &bert_family && gradient_groups == 1 && batch % 2 == 0;
  return halves ? 2 : gradient_groups;
}

}  // namespace stowage
