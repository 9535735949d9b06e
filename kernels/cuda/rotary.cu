#include "kernels/cuda/rotary.h"

#include <bit>
#include <cmath>

#include "kernels/cuda/column_sum.h"
#include "kernels/cuda/kernel_registry.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/reduce.h"
#include "kernels/math/sine_cosine.h"

namespace stowage::cuda {

inline constexpr int rotary_threads = 256;
// Elements that a thread has of each half of a head. A group of threads has a head: a power of two of
// them, at most a warp.
inline constexpr int turn_size = 8;
inline constexpr int most_rotary_pairs = static_cast<int>(most_rotary_width / 2);
static_assert(most_rotary_pairs <= warp_size * turn_size);

// A thread's place: its group among the block's, which have one head each, and its elements of a half of the
// head, of which `left` exist.
struct RotaryLane {
  int lanes, group, groups, first;
  std::int64_t left;

  __device__ RotaryLane(const RotaryShape& shape, int lanes_of_head)
      : lanes(lanes_of_head),
        group(static_cast<int>(threadIdx.x) / lanes),
        groups(rotary_threads / lanes),
        first(static_cast<int>(threadIdx.x) % lanes * turn_size),
        left(shape.half() - first) {}
};

// A thread's elements of one head.
struct RotaryPart {
  float low[turn_size], high[turn_size];

  template <class T>
  __device__ void load(const T* head, std::int64_t half, const RotaryLane& lane, bool aligned) {
    load_packs(head + lane.first, lane.left, aligned, low);
    load_packs(head + half + lane.first, lane.left, aligned, high);
  }
  template <class T>
  __device__ void store(T* head, std::int64_t half, const RotaryLane& lane, bool aligned) const {
    store_packs(head + lane.first, lane.left, aligned, low);
    store_packs(head + half + lane.first, lane.left, aligned, high);
  }
  __device__ void clear() {
    for (int k = 0; k < turn_size; ++k) low[k] = high[k] = 0;
  }
  __device__ void scale(float by) {
    for (int k = 0; k < turn_size; ++k) {
      low[k] *= by;
      high[k] *= by;
    }
  }
  __device__ void multiply(const RotaryPart& by) {
    for (int k = 0; k < turn_size; ++k) {
      low[k] *= by.low[k];
      high[k] *= by.high[k];
    }
  }
  __device__ void add_product(const RotaryPart& a, const RotaryPart& b) {
    for (int k = 0; k < turn_size; ++k) {
      low[k] += a.low[k] * b.low[k];
      high[k] += a.high[k] * b.high[k];
    }
  }
};

// The sum of all a b of a head, in every lane of its group. Requires whole warps.
__device__ inline float dot(const RotaryPart& a, const RotaryPart& b, const RotaryLane& lane) {
  float sum = 0;
  for (int k = 0; k < turn_size; ++k) sum += a.low[k] * b.low[k];
  for (int k = 0; k < turn_size; ++k) sum += a.high[k] * b.high[k];
  return reduce_warp<Sum>(sum, lane.lanes);
}

// sin and cos of a token's angles, in the block's shared memory. Behind the last pair, frequencies are 0.
struct RotaryTurns {
  float sine[most_rotary_pairs], cosine[most_rotary_pairs];

  // The block computes each angle of the token once. `direction`: 1, or -1 to turn back.
  __device__ void find(const RotaryShape& shape, std::int64_t token, float direction,
                       const RotaryLane& lane) {
    const float position = shape.position(token);
    for (int pair = static_cast<int>(threadIdx.x); pair < lane.lanes * turn_size; pair += rotary_threads) {
      const SineCosine<double> at = sine_cosine(shape.angle(position, pair));
      sine[pair] = direction * static_cast<float>(at.sine);
      cosine[pair] = static_cast<float>(at.cosine);
    }
    __syncthreads();
  }

  __device__ void apply(RotaryPart& to, const RotaryLane& lane) const {
    for (int k = 0; k < turn_size; ++k) {
      const float a = to.low[k];
      const float b = to.high[k];
      to.low[k] = a * cosine[lane.first + k] - b * sine[lane.first + k];
      to.high[k] = b * cosine[lane.first + k] + a * sine[lane.first + k];
    }
  }
};

// A block has one token. A thread writes only elements that no other thread reads.
template <class T>
__global__ void __launch_bounds__(rotary_threads)
    rotary_kernel(RotaryShape shape, float direction, const T* x, T* y, int lanes, bool aligned) {
  __shared__ RotaryTurns turns;
  const RotaryLane lane(shape, lanes);
  const std::int64_t token = blockIdx.x;
  turns.find(shape, token, direction, lane);
  for (std::int64_t head = lane.group; head < shape.all_heads(); head += lane.groups) {
    const std::int64_t at = token * shape.columns() + head * shape.width;
    RotaryPart part;
    part.load(x + at, shape.half(), lane, aligned);
    if (head < shape.turned_heads()) turns.apply(part, lane);
    part.store(y + at, shape.half(), lane, aligned);
  }
}

// A block has one token.
template <class T>
__global__ void __launch_bounds__(rotary_threads)
    normed_rotary_kernel(RotaryShape shape, float epsilon, const T* qkv, const T* query_gain,
                         const T* key_gain, T* y, float* rstd, int lanes, bool aligned) {
  __shared__ RotaryTurns turns;
  const RotaryLane lane(shape, lanes);
  const std::int64_t token = blockIdx.x;
  const std::int64_t half = shape.half();
  turns.find(shape, token, 1, lane);
  // All groups take part in the sums, those behind the last head too.
  for (std::int64_t head = lane.group; head - lane.group < shape.all_heads(); head += lane.groups) {
    const std::int64_t at = token * shape.columns() + head * shape.width;
    RotaryPart part;
    part.clear();
    if (head < shape.all_heads()) part.load(qkv + at, half, lane, aligned);
    const float average = dot(part, part, lane) / static_cast<float>(shape.width);
    const float inverse = 1.0F / std::sqrt(average + epsilon);
    if (head < shape.turned_heads()) {
      RotaryPart gain;
      gain.load(head < shape.heads ? query_gain : key_gain, half, lane, aligned);
      part.scale(inverse);
      part.multiply(gain);
      turns.apply(part, lane);
      if (lane.first == 0) rstd[token * shape.turned_heads() + head] = inverse;
    }
    if (head < shape.all_heads()) part.store(y + at, half, lane, aligned);
  }
}

// Computes dqkv of one query or key head, and adds to the sums of its gain. A group behind the last head only
// takes part in the sums over lanes.
template <class T>
__device__ void head_backward(const RotaryShape& shape, const NormedRotaryGradient<T>& of,
                              const RotaryTurns& turns, const RotaryLane& lane, std::int64_t token,
                              std::int64_t head, bool aligned, RotaryPart& query_sum, RotaryPart& key_sum) {
  const std::int64_t half = shape.half();
  const std::int64_t at = token * shape.columns() + head * shape.width;
  const bool exists = head < shape.turned_heads();
  const bool is_query = head < shape.heads;
  RotaryPart normal, flow;
  float inverse = 0;
  normal.clear();
  flow.clear();
  if (exists) {
    inverse = of.rstd[token * shape.turned_heads() + head];
    normal.load(of.qkv + at, half, lane, aligned);
    flow.load(of.dy + at, half, lane, aligned);
    turns.apply(flow, lane);
    normal.scale(inverse);
    if (is_query) query_sum.add_product(flow, normal);
    if (!is_query) key_sum.add_product(flow, normal);
    RotaryPart gain;
    gain.load(is_query ? of.query_gain : of.key_gain, half, lane, aligned);
    flow.multiply(gain);
  }
  const float slope = dot(flow, normal, lane) / static_cast<float>(shape.width);
  if (!exists) return;
  for (int k = 0; k < turn_size; ++k) {
    flow.low[k] = inverse * (flow.low[k] - normal.low[k] * slope);
    flow.high[k] = inverse * (flow.high[k] - normal.high[k] * slope);
  }
  flow.store(of.dqkv + at, half, lane, aligned);
}

template <class T>
__device__ void copy_values(const RotaryShape& shape, const NormedRotaryGradient<T>& of,
                            const RotaryLane& lane, std::int64_t token, bool aligned) {
  for (std::int64_t head = shape.turned_heads() + lane.group; head < shape.all_heads(); head += lane.groups) {
    const std::int64_t at = token * shape.columns() + head * shape.width;
    RotaryPart part;
    part.load(of.dy + at, shape.half(), lane, aligned);
    part.store(of.dqkv + at, shape.half(), lane, aligned);
  }
}

// Adds up the sums of all groups in order, and writes them to to[width].
__device__ inline void write_gain_sum(const RotaryShape& shape, const RotaryLane& lane, const RotaryPart& sum,
                                      float* shared, float* to) {
  const int width = static_cast<int>(shape.width);
  sum.store(shared + lane.group * width, shape.half(), lane, false);
  __syncthreads();
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < width; i += rotary_threads) {
    float total = 0;
    for (int group = 0; group < lane.groups; ++group) total += shared[group * width + i];
    to[i] = total;
  }
  __syncthreads();
}

// A block has a chunk of tokens, and writes the sums of both gains over it to partial[chunk, 2, width],
// unless that is null.
template <class T>
__global__ void __launch_bounds__(rotary_threads)
    normed_rotary_backward_kernel(RotaryShape shape, ColumnChunks cut, NormedRotaryGradient<T> of,
                                  float* partial, int lanes, bool aligned) {
  __shared__ RotaryTurns turns;
  __shared__ float shared[rotary_threads * 2 * turn_size];
  const RotaryLane lane(shape, lanes);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * cut.rows_per_chunk;
  const std::int64_t last = first + cut.rows_per_chunk < cut.rows ? first + cut.rows_per_chunk : cut.rows;
  RotaryPart query_sum, key_sum;
  query_sum.clear();
  key_sum.clear();
  for (std::int64_t token = first; token < last; ++token) {
    __syncthreads();  // the turns of the token before have been read
    turns.find(shape, token, -1, lane);
    for (std::int64_t head = lane.group; head - lane.group < shape.turned_heads(); head += lane.groups) {
      head_backward(shape, of, turns, lane, token, head, aligned, query_sum, key_sum);
    }
    copy_values(shape, of, lane, token, aligned);
  }
  if (partial == nullptr) return;
  float* const to = partial + static_cast<std::int64_t>(blockIdx.x) * 2 * shape.width;
  write_gain_sum(shape, lane, query_sum, shared, to);
  write_gain_sum(shape, lane, key_sum, shared, to + shape.width);
}

// The threads of a head's group.
inline int rotary_lanes(const RotaryShape& shape) {
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(blocks_for(shape.half(), turn_size))));
}

template <class T>
void turn_rows(const RotaryShape& shape, float direction, const T* x, T* y, const char* name, void* stream) {
  launch(rotary_kernel<T>, name, {{shape.tokens}, rotary_threads}, stream, shape, direction, x, y,
         rotary_lanes(shape), rows_are_aligned<T>(shape.half(), x, y));
}

template <class T>
void rotary(const RotaryShape& shape, const T* qkv, T* y, void* stream) {
  turn_rows(shape, 1, qkv, y, "rotary", stream);
}

template <class T>
void rotary_backward(const RotaryShape& shape, const T* dy, T* dqkv, void* stream) {
  turn_rows(shape, -1, dy, dqkv, "rotary_backward", stream);
}

template <class T>
void normed_rotary(const RotaryShape& shape, double epsilon, const T* qkv, const T* query_gain,
                   const T* key_gain, T* y, float* rstd, void* stream) {
  launch(normed_rotary_kernel<T>, "rotary", {{shape.tokens}, rotary_threads}, stream, shape, epsilon, qkv,
         query_gain, key_gain, y, rstd, rotary_lanes(shape),
         rows_are_aligned<T>(shape.half(), qkv, query_gain, key_gain, y));
}

// Blocks that an H100 runs at once: each of its 132 processors has registers for two.
inline constexpr std::int64_t most_rotary_chunks = 264;
inline constexpr std::int64_t least_tokens_of_chunk = 2;

template <class T>
void normed_rotary_backward(const RotaryShape& shape, const NormedRotaryGradient<T>& of, void* stream) {
  const ColumnChunks cut =
      cut_rows({shape.tokens, shape.width}, 2, least_tokens_of_chunk, most_rotary_chunks);
  float* partial = nullptr;
  if (of.dquery_gain != nullptr)
    partial = scratch_for<float>(stream, cut.chunks * 2 * shape.width, "rotary_backward");
  const bool aligned = rows_are_aligned<T>(shape.half(), of.qkv, of.query_gain, of.key_gain, of.dy, of.dqkv);
  launch(normed_rotary_backward_kernel<T>, "rotary_backward", {{cut.chunks}, rotary_threads}, stream, shape,
         cut, of, partial, rotary_lanes(shape), aligned);
  if (partial != nullptr) add_chunks(cut, 2, partial, of.dquery_gain, of.dkey_gain, stream);
}

template void rotary(const RotaryShape&, const float*, float*, void*);
template void rotary(const RotaryShape&, const Bfloat16*, Bfloat16*, void*);
template void rotary(const RotaryShape&, const Float16*, Float16*, void*);
template void rotary_backward(const RotaryShape&, const float*, float*, void*);
template void rotary_backward(const RotaryShape&, const Bfloat16*, Bfloat16*, void*);
template void rotary_backward(const RotaryShape&, const Float16*, Float16*, void*);
template void normed_rotary(const RotaryShape&, double, const float*, const float*, const float*, float*,
                            float*, void*);
template void normed_rotary(const RotaryShape&, double, const Bfloat16*, const Bfloat16*, const Bfloat16*,
                            Bfloat16*, float*, void*);
template void normed_rotary(const RotaryShape&, double, const Float16*, const Float16*, const Float16*,
                            Float16*, float*, void*);
template void normed_rotary_backward(const RotaryShape&, const NormedRotaryGradient<float>&, void*);
template void normed_rotary_backward(const RotaryShape&, const NormedRotaryGradient<Bfloat16>&, void*);
template void normed_rotary_backward(const RotaryShape&, const NormedRotaryGradient<Float16>&, void*);

STOWAGE_CUDA_KERNEL(rotary_kernel<float>);
STOWAGE_CUDA_KERNEL(rotary_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(rotary_kernel<Float16>);
STOWAGE_CUDA_KERNEL(normed_rotary_kernel<float>);
STOWAGE_CUDA_KERNEL(normed_rotary_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(normed_rotary_kernel<Float16>);
STOWAGE_CUDA_KERNEL(normed_rotary_backward_kernel<float>);
STOWAGE_CUDA_KERNEL(normed_rotary_backward_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(normed_rotary_backward_kernel<Float16>);

}  // namespace stowage::cuda
