#include "tools/calibrate/codec_probe.h"

#include <string>
#include <utility>

#include "tools/calibrate/stopwatch.h"

namespace stowage {
namespace {

Op codec_op(std::string kernel, CodeBits bits) {
  Op op;
  op.name = "calibrate." + kernel;
  op.kernel = std::move(kernel);
  op.attributes = {{"bits", static_cast<std::int64_t>(bits)}};
  return op;
}

bool has_codec(const LaunchTable& kernels) {
  return kernels.find_if_present("encode") != nullptr && kernels.find_if_present("decode") != nullptr;
}

CodecRate codec_rate(const OpProbeContext& context, const CodecProbeOptions& options, DataType type,
                     CodeBits bits, double launch_seconds) {
  Stopwatch stopwatch(context.device, context.lane);
  const auto rate = [&](OpProbe& probe) {
    const double seconds = stopwatch.median_seconds(options.repetitions, [&] { probe.launch(); });
    return static_cast<double>(probe.bytes()) / without_launch(seconds, launch_seconds);
  };
  const Tensor array = probe_tensor(type, {options.elements});
  const auto bytes = static_cast<std::int64_t>(coded_bytes(options.elements, bits));
  OpProbe encode(context, codec_op("encode", bits), {array}, {probe_tensor(DataType::u8, {bytes})});
  const double encoded = rate(encode);
  OpProbe decode(context, codec_op("decode", bits), encode, {array});
  return {type, bits, {encoded, rate(decode)}};
}

}  // namespace

Bytes bytes_of(const CodecProbeOptions& options) {
  constexpr Bytes arrays = 2;  // one that is encoded, and one that is decoded
  return arrays * static_cast<Bytes>(options.elements) * size_of(DataType::f32) +
         coded_bytes(options.elements, CodeBits::eight);
}

std::vector<CodecRate> measure_codec(const OpProbeContext& context, const CodecProbeOptions& options,
                                     DataType type, double launch_seconds) {
  std::vector<CodecRate> rates;
  if (type == DataType::f64 || !has_codec(context.kernels)) return rates;
  for (const CodeBits bits : {CodeBits::four, CodeBits::eight})
    rates.push_back(codec_rate(context, options, type, bits, launch_seconds));
  return rates;
}

}  // namespace stowage
