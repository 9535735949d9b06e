// Sixteen bytes of elements at a time, computed with in f32.
//
// The distribution of elements to threads and lanes never depends on an address: if a row is not 16-byte
// aligned, the same pack is read element by element.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/math/bfloat16.h"
#include "kernels/math/float16.h"
#include "kernels/math/host_device.h"

namespace stowage::cuda {

template <class T>
inline constexpr int pack_size = static_cast<int>(16 / sizeof(T));

template <class T>
struct Pack {
  float values[pack_size<T>];
};

// Stands for elements of any type.
struct __attribute__((may_alias, aligned(16))) SixteenBytes {
  std::uint32_t words[4];
};

// Stores 16 bytes at once, to global or shared memory: nvcc makes four stores of a plain assignment in a
// loop, aligned or not.
STOWAGE_HOST_DEVICE void store_sixteen(void* to, const SixteenBytes& from) {
#ifdef __CUDA_ARCH__
  asm volatile("st.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(from.words[0]), "r"(from.words[1]),
               "r"(from.words[2]), "r"(from.words[3])
               : "memory");
#else
  *static_cast<SixteenBytes*>(to) = from;
#endif
}

STOWAGE_HOST_DEVICE float word_as_float(std::uint32_t word) { return std::bit_cast<float>(word); }

// Takes the words by value: the copy is one load of 16 bytes.
STOWAGE_HOST_DEVICE Pack<float> unpack(SixteenBytes from, const float*) {
  Pack<float> pack;
  for (int i = 0; i < 4; ++i) pack.values[i] = word_as_float(from.words[i]);
  return pack;
}
STOWAGE_HOST_DEVICE Pack<Bfloat16> unpack(SixteenBytes from, const Bfloat16*) {
  Pack<Bfloat16> pack;
  for (int i = 0; i < 4; ++i) {
    pack.values[2 * i] = word_as_float(from.words[i] << 16U);
    pack.values[2 * i + 1] = word_as_float(from.words[i] & 0xffff0000U);
  }
  return pack;
}
STOWAGE_HOST_DEVICE Pack<Float16> unpack(SixteenBytes from, const Float16*) {
  Pack<Float16> pack;
  for (int i = 0; i < 8; ++i) {
    const auto half = static_cast<std::uint16_t>(from.words[i / 2] >> (i % 2 == 0 ? 0U : 16U));
    pack.values[i] = static_cast<float>(std::bit_cast<Float16>(half));
  }
  return pack;
}

STOWAGE_HOST_DEVICE SixteenBytes packed(const Pack<float>& pack) {
  SixteenBytes to;
  for (int i = 0; i < 4; ++i) to.words[i] = std::bit_cast<std::uint32_t>(pack.values[i]);
  return to;
}
// Two elements of a type of 16 bits, rounded to the nearest, in one word. A card has an instruction for this,
// which turns every NaN into the same one.
template <class T>
STOWAGE_HOST_DEVICE std::uint32_t packed_pair(float first, float second) {
#ifdef __CUDA_ARCH__
  std::uint32_t word = 0;
  if constexpr (std::is_same_v<T, Float16>)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
#else
  return T(first).bits | static_cast<std::uint32_t>(T(second).bits) << 16U;
#endif
}
// T: a type of 16 bits.
template <class T>
STOWAGE_HOST_DEVICE SixteenBytes packed(const Pack<T>& pack) {
  SixteenBytes to;
  for (int i = 0; i < 4; ++i) to.words[i] = packed_pair<T>(pack.values[2 * i], pack.values[2 * i + 1]);
  return to;
}

// Returns at most `count` elements from `x` on, and zeros behind them. `aligned`: x is 16-byte aligned.
template <class T>
STOWAGE_HOST_DEVICE Pack<T> load_pack(const T* x, std::int64_t count, bool aligned) {
  if (aligned && count >= pack_size<T>) return unpack(*reinterpret_cast<const SixteenBytes*>(x), x);
  Pack<T> pack;
  for (int i = 0; i < pack_size<T>; ++i) pack.values[i] = i < count ? static_cast<float>(x[i]) : 0.0F;
  return pack;
}

// As load_pack, but returns the elements as they lie in memory. Loads of several packs are under way together
// if they all come before the first use: a thread that unpacks each pack at once waits for each.
template <class T>
STOWAGE_HOST_DEVICE SixteenBytes load_words(const T* x, std::int64_t count, bool aligned) {
  if (aligned && count >= pack_size<T>) return *reinterpret_cast<const SixteenBytes*>(x);
  return packed(load_pack(x, count, false));
}
// For rows that are known to be aligned when the kernel is compiled: a pack is whole, or behind the end.
template <class T>
STOWAGE_HOST_DEVICE SixteenBytes load_words(const T* x, std::int64_t count, std::true_type) {
  if (count <= 0) return {};
  return *reinterpret_cast<const SixteenBytes*>(x);
}

template <class T>
STOWAGE_HOST_DEVICE void store_pack(T* x, std::int64_t count, bool aligned, const Pack<T>& pack) {
  if (aligned && count >= pack_size<T>) {
    store_sixteen(x, packed(pack));
    return;
  }
  for (int i = 0; i < pack_size<T>; ++i) {
    if (i < count) x[i] = static_cast<T>(pack.values[i]);
  }
}

template <class T>
STOWAGE_HOST_DEVICE void store_pack(T* x, std::int64_t count, std::true_type, const Pack<T>& pack) {
  if (count > 0) store_sixteen(x, packed(pack));
}

// As load_pack and store_pack, for `size` elements from `x` on; `size` is a multiple of a pack.
template <int size, class T>
STOWAGE_HOST_DEVICE void load_packs(const T* x, std::int64_t count, bool aligned, float (&values)[size]) {
  for (int first = 0; first < size; first += pack_size<T>) {
    const Pack<T> pack = load_pack(x + first, count - first, aligned);
    for (int k = 0; k < pack_size<T>; ++k) values[first + k] = pack.values[k];
  }
}

template <int size, class T>
STOWAGE_HOST_DEVICE void store_packs(T* x, std::int64_t count, bool aligned, const float (&values)[size]) {
  for (int first = 0; first < size; first += pack_size<T>) {
    Pack<T> pack;
    for (int k = 0; k < pack_size<T>; ++k) pack.values[k] = values[first + k];
    store_pack(x + first, count - first, aligned, pack);
  }
}

// Replaces the pack's elements from `count` on by `value`.
template <class T>
STOWAGE_HOST_DEVICE void fill_behind(std::int64_t count, float value, Pack<T>& pack) {
  if (count >= pack_size<T>) return;
  for (int k = 0; k < pack_size<T>; ++k) {
    if (k >= count) pack.values[k] = value;
  }
}

inline bool is_aligned(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; }

// Whether every row of `width` elements starts 16-byte aligned, in all of the tensors.
template <class T, class... Tensors>
bool rows_are_aligned(std::int64_t width, const Tensors*... tensors) {
  return width % pack_size<T> == 0 && (is_aligned(tensors) && ...);
}

}  // namespace stowage::cuda
