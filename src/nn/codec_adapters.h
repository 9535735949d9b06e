// Adapters of the codec's kernels, in the manner of transformer_adapters.h. The type that they work in is
// that of the tensor in plain numbers, which decode writes.
#pragma once

#include <fmt/format.h>

#include <cstddef>

#include "src/nn/kernel_call.h"
#include "stowage/codec.h"
#include "stowage/launch_table.h"

namespace stowage::nn {

template <class Kernels>
class CodecAdapters {
 public:
  static void add_to(LaunchTable& table) {
    table.add("encode", encode);
    table.add("decode", decode);
  }

 private:
  static void encode(const LaunchArguments& arguments) {
    const KernelCall call(arguments);
    call.expect(1, 1, 1);
    const std::int64_t count = call.elements(0);
    const CodeBits bits = checked_bits(call, count, call.written_elements(0));
    for_type(call, call.read_type(0), [&]<class T>(T) {
      Kernels::encode(call.stream(), bits, count, call.read<T>(0),
                      reinterpret_cast<std::byte*>(call.write<std::uint8_t>(0)));
    });
  }

  static void decode(const LaunchArguments& arguments) {
    const KernelCall call(arguments);
    call.expect(1, 1, 1);
    const std::int64_t count = call.written_elements(0);
    const CodeBits bits = checked_bits(call, count, call.elements(0));
    for_type(call, call.written_type(0), [&]<class T>(T) {
      Kernels::decode(call.stream(), bits, count,
                      reinterpret_cast<const std::byte*>(call.read<std::uint8_t>(0)), call.write<T>(0));
    });
  }

  // Returns the attribute `bits`. Throws InvalidInput if `count` elements do not take `bytes` with it.
  static CodeBits checked_bits(const KernelCall& call, std::int64_t count, std::int64_t bytes) {
    const std::int64_t given = call.integer("bits");
    if (given != 4 && given != 8) call.fail("needs 4 or 8 as attribute 'bits'");
    const auto bits = static_cast<CodeBits>(given);
    if (static_cast<Bytes>(bytes) != coded_bytes(count, bits))
      call.fail(fmt::format("has {} bytes of codes, but {} elements take {}", bytes, count,
                            coded_bytes(count, bits)));
    return bits;
  }

  template <class Run>
  static void for_type(const KernelCall& call, DataType type, Run run) {
    switch (type) {
      case DataType::f32:
        return run(float{});
      case DataType::bf16:
        return run(Bfloat16{});
      case DataType::f16:
        return run(Float16{});
      default:
        call.fail(fmt::format("codes {}, but the codec takes f32, bf16 and f16", to_string(type)));
    }
  }
};

}  // namespace stowage::nn
