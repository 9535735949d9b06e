// Words of the command line: models, sizes, sweeps, links. One word per line, in the order of `words_of`.
#include "tools/choices/model_spec.h"

#include "samples/options/options.h"
#include "tests/fuzz/target.h"
#include "tools/cli/plan_sweep.h"
#include "tools/console/text.h"

namespace stowage::fuzz {
namespace {

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (lines.size() < 32) {
    const std::size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return lines;
}

struct Words {
  ModelWords model;
  std::string sweep, bytes, link;
};

Words words_of(std::vector<std::string> lines) {
  lines.resize(11);
  Words words{
      {lines[0], lines[1], lines[2], lines[3], lines[4], lines[5], lines[6]}, lines[7], lines[8], lines[9]};
  words.model.devices = lines[10];
  return words;
}

// Building takes no tensor memory, but an op's worth of time per op.
void build_small(const ModelSpec& spec) {
  if (spec.config.layers > 4) return;
  try {
    check(build(spec));
  } catch (const InvalidInput&) {
    return;  // a field that is too large
  }
}

// All of train_gpt's command line: each line is one word.
void parse_training(const std::vector<std::string>& lines) {
  std::vector<const char*> words{"train_gpt"};
  for (const std::string& line : lines) words.push_back(line.c_str());
  parsed_or_refused(
      [&] { return samples::parse_command_line(static_cast<int>(words.size()), words.data()); });
}

}  // namespace

std::vector<std::string> seeds() {
  return {"24x1024\n\n16\n512\n4\n50304\nbf16\nmemory=12\n6GiB\n8GB/s",
          "\nbase\n\n\n2\n\n\nbatch=1,2,4\n1.5G\nunthrottled",
          "2x64\n\n2\n16\n1\n96\nf32\nbatch\n4096\n8000000000", "2x64\n\n1\n16\n4\n\n\ndevices=1,2\n\n\n2",
          "--data\ntext.txt\n--layers\n2\n--width\n64\n--heads\n2"};
}

std::vector<std::string> dictionary() {
  return {"x",      "gpt2-xl",         "175b",      "large",  "bf16",     "memory=", "batch=",
          "MiB",    "unlimited",       "GB/s",      "--type", "--steps",  "--",      "1024x1048576",
          "--help", "--device-memory", "1048576x1", "e9",     "devices=", "--link",  "--policy"};
}

}  // namespace stowage::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stowage;
  const std::vector<std::string> lines = fuzz::lines_of(fuzz::text_of(data, size));
  const fuzz::Words words = fuzz::words_of(lines);
  const auto spec = fuzz::parsed_or_refused([&] { return model_spec(words.model, DataType::f32); });
  if (spec && *spec) {
    describe(**spec);
    fuzz::build_small(**spec);
  }
  const auto sweep = fuzz::parsed_or_refused([&] { return parse_sweep(words.sweep); });
  if (sweep && sweep->over == Sweep::Over::memory) sweep_budgets(1000, Bytes{1} << 62, sweep->budgets);
  fuzz::parsed_or_refused([&] { return parse_bytes(words.bytes); });
  const auto link = fuzz::parsed_or_refused([&] { return parse_link(words.link); });
  if (link && !(link->bytes_per_second > 0)) fuzz::broken("a link without a rate: " + words.link);
  fuzz::parse_training(lines);
  return 0;
}
