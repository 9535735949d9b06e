#include "kernels/cpu/rotary.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/clones.h"
#include "kernels/math/sine_cosine.h"
#include "src/base/parallel_for.h"

namespace stowage::cpu {
namespace {

constexpr std::int64_t elements_per_chunk = 16384;
constexpr std::int64_t most_half = most_rotary_width / 2;

std::int64_t tokens_per_chunk(const RotaryShape& shape) {
  return std::max<std::int64_t>(1, elements_per_chunk / shape.columns());
}

// sin and cos of a token's angles.
template <class T>
struct Turns {
  T sine[most_half], cosine[most_half];
};

// `direction`: 1, or -1 to turn back.
template <class T>
STOWAGE_HOST_DEVICE void find_loop(const RotaryShape& shape, std::int64_t token, T direction,
                                   Turns<T>& turns) {
  const float position = shape.position(token);
  const std::int64_t half = shape.half();
#pragma omp simd
  for (std::int64_t i = 0; i < half; ++i) {
    const SineCosine<double> at = sine_cosine(shape.angle(position, i));
    turns.sine[i] = direction * static_cast<T>(at.sine);
    turns.cosine[i] = static_cast<T>(at.cosine);
  }
}

// y may be x.
template <class T>
STOWAGE_HOST_DEVICE void turn_loop(std::int64_t half, const Turns<T>& turns, const T* x, T* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < half; ++i) {
    const T a = x[i];
    const T b = x[i + half];
    y[i] = a * turns.cosine[i] - b * turns.sine[i];
    y[i + half] = b * turns.cosine[i] + a * turns.sine[i];
  }
}

// Sums in 16 lanes, whatever the vectors' size, then in a tree.
template <class T>
STOWAGE_HOST_DEVICE T dot(std::int64_t count, const T* a, const T* b) {
  constexpr std::int64_t lanes = 16;
  T sums[lanes] = {};
  const std::int64_t whole = count / lanes * lanes;
  for (std::int64_t i = 0; i < whole; i += lanes) {
#pragma omp simd
    for (std::int64_t k = 0; k < lanes; ++k) sums[k] += a[i + k] * b[i + k];
  }
  for (std::int64_t i = whole; i < count; ++i) sums[i - whole] += a[i] * b[i];
  for (std::int64_t distance = lanes / 2; distance > 0; distance /= 2) {
    for (std::int64_t k = 0; k < distance; ++k) sums[k] += sums[k + distance];
  }
  return sums[0];
}

// Returns rstd. y is not x.
template <class T>
STOWAGE_HOST_DEVICE T normalise_loop(std::int64_t width, T epsilon, const T* x, const T* gain, T* y) {
  const T rstd = 1 / std::sqrt(dot(width, x, x) / static_cast<T>(width) + epsilon);
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i) y[i] = x[i] * rstd * gain[i];
  return rstd;
}

// Rows between the steps of a head's backward.
template <class T>
struct HeadRows {
  T flow[most_rotary_width] = {};
  T normal[most_rotary_width] = {};
};

// dx may be dy. Adds to `sums` the terms of the gain's gradient.
template <class T>
STOWAGE_HOST_DEVICE void backward_loop(std::int64_t width, const Turns<T>& turns, const T* x, const T* gain,
                                       T rstd, const T* dy, HeadRows<T>& rows, T* dx, T* sums) {
  T* const flow = rows.flow;
  T* const normal = rows.normal;
  turn_loop(width / 2, turns, dy, flow);
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i) {
    normal[i] = x[i] * rstd;
    sums[i] += flow[i] * normal[i];
    flow[i] *= gain[i];
  }
  const T slope = dot(width, flow, normal) / static_cast<T>(width);
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i) dx[i] = rstd * (flow[i] - normal[i] * slope);
}

STOWAGE_CLONES void find_turns(const RotaryShape& shape, std::int64_t token, float direction,
                               Turns<float>& turns) {
  find_loop(shape, token, direction, turns);
}
void find_turns(const RotaryShape& shape, std::int64_t token, double direction, Turns<double>& turns) {
  find_loop(shape, token, direction, turns);
}

STOWAGE_CLONES void turn(std::int64_t half, const Turns<float>& turns, const float* x, float* y) {
  turn_loop(half, turns, x, y);
}
void turn(std::int64_t half, const Turns<double>& turns, const double* x, double* y) {
  turn_loop(half, turns, x, y);
}

STOWAGE_CLONES float normalise(std::int64_t width, float epsilon, const float* x, const float* gain,
                               float* y) {
  return normalise_loop(width, epsilon, x, gain, y);
}
double normalise(std::int64_t width, double epsilon, const double* x, const double* gain, double* y) {
  return normalise_loop(width, epsilon, x, gain, y);
}

STOWAGE_CLONES void head_backward(std::int64_t width, const Turns<float>& turns, const float* x,
                                  const float* gain, float rstd, const float* dy, HeadRows<float>& rows,
                                  float* dx, float* sums) {
  backward_loop(width, turns, x, gain, rstd, dy, rows, dx, sums);
}
void head_backward(std::int64_t width, const Turns<double>& turns, const double* x, const double* gain,
                   double rstd, const double* dy, HeadRows<double>& rows, double* dx, double* sums) {
  backward_loop(width, turns, x, gain, rstd, dy, rows, dx, sums);
}

template <class T>
void copy_values(const RotaryShape& shape, const T* row, T* to) {
  const std::int64_t first = shape.turned_heads() * shape.width;
  if (row != to) std::copy(row + first, row + shape.columns(), to + first);
}

template <class T>
void turn_rows(const RotaryShape& shape, Sum<T> direction, const T* x, T* y) {
  parallel_for(shape.tokens, tokens_per_chunk(shape), [&](std::int64_t begin, std::int64_t end) {
    Turns<Sum<T>> turns;
    Sum<T> buffer[most_rotary_width];
    for (std::int64_t token = begin; token < end; ++token) {
      const std::int64_t row = token * shape.columns();
      find_turns(shape, token, direction, turns);
      for (std::int64_t head = 0; head < shape.turned_heads(); ++head) {
        const std::int64_t at = row + head * shape.width;
        Sum<T>* const to = target(y + at, buffer);
        turn(shape.half(), turns, loaded(shape.width, x + at, buffer), to);
        store(shape.width, to, y + at);
      }
      copy_values(shape, x + row, y + row);
    }
  });
}

// The gains of queries and keys, in the type that kernels compute in.
template <class T>
struct Gains {
  Sum<T> buffers[2][most_rotary_width];
  const Sum<T>* query;
  const Sum<T>* key;

  Gains(std::int64_t width, const T* of_queries, const T* of_keys)
      : query(loaded(width, of_queries, buffers[0])), key(loaded(width, of_keys, buffers[1])) {}
};

// The terms of the gains' gradients: of `runs` consecutive runs of tokens.
template <class T>
class GainSums {
 public:
  explicit GainSums(const RotaryShape& shape)
      : width_(shape.width),
        run_(std::max(least_run, (shape.tokens + most_runs() - 1) / most_runs())),
        runs_((shape.tokens + run_ - 1) / run_) {
    std::fill_n(sums_, runs_ * 2 * width_, Sum<T>{0});
  }
  std::int64_t run() const { return run_; }

  // Adds the sums of one token's heads: of its query heads, then of its key heads.
  void add(std::int64_t token, const Sum<T>* query, const Sum<T>* key) {
    Sum<T>* const to = sums_ + token / run_ * 2 * width_;
    for (std::int64_t i = 0; i < width_; ++i) to[i] += query[i];
    for (std::int64_t i = 0; i < width_; ++i) to[width_ + i] += key[i];
  }
  void write(T* query, T* key) const {
    for (std::int64_t i = 0; i < width_; ++i) query[i] = rounded<T>(total(i));
    for (std::int64_t i = 0; i < width_; ++i) key[i] = rounded<T>(total(width_ + i));
  }

 private:
  static constexpr std::int64_t least_run = 16;
  static constexpr std::int64_t capacity =
      (std::int64_t{256} << 10) / static_cast<std::int64_t>(sizeof(Sum<T>));

  std::int64_t most_runs() const { return std::min<std::int64_t>(64, capacity / (2 * width_)); }
  Sum<T> total(std::int64_t column) const {
    Sum<T> sum = 0;
    for (std::int64_t run = 0; run < runs_; ++run) sum += sums_[run * 2 * width_ + column];
    return sum;
  }

  std::int64_t width_, run_, runs_;
  Sum<T> sums_[capacity];  // [runs, 2, width]
};

template <class T>
void token_backward(const RotaryShape& shape, const NormedRotaryGradient<T>& of, const Gains<T>& gains,
                    std::int64_t token, GainSums<T>& sums) {
  Turns<Sum<T>> turns;
  find_turns(shape, token, Sum<T>{-1}, turns);
  Sum<T> x[most_rotary_width] = {}, flow[most_rotary_width] = {};
  Sum<T> query[most_rotary_width] = {}, key[most_rotary_width] = {};
  HeadRows<Sum<T>> rows;
  for (std::int64_t head = 0; head < shape.turned_heads(); ++head) {
    const bool is_query = head < shape.heads;
    const std::int64_t at = token * shape.columns() + head * shape.width;
    Sum<T>* const to = target(of.dqkv + at, flow);
    head_backward(shape.width, turns, loaded(shape.width, of.qkv + at, x), is_query ? gains.query : gains.key,
                  of.rstd[token * shape.turned_heads() + head], loaded(shape.width, of.dy + at, flow), rows,
                  to, is_query ? query : key);
    store(shape.width, to, of.dqkv + at);
  }
  copy_values(shape, of.dy + token * shape.columns(), of.dqkv + token * shape.columns());
  sums.add(token, query, key);
}

}  // namespace

template <class T>
void rotary(const RotaryShape& shape, const T* qkv, T* y) {
  turn_rows(shape, Sum<T>{1}, qkv, y);
}

template <class T>
void rotary_backward(const RotaryShape& shape, const T* dy, T* dqkv) {
  turn_rows(shape, Sum<T>{-1}, dy, dqkv);
}

template <class T>
void normed_rotary(const RotaryShape& shape, double epsilon, const T* qkv, const T* query_gain,
                   const T* key_gain, T* y, Sum<T>* rstd) {
  parallel_for(shape.tokens, tokens_per_chunk(shape), [&](std::int64_t begin, std::int64_t end) {
    const Gains<T> gains(shape.width, query_gain, key_gain);
    Turns<Sum<T>> turns;
    Sum<T> x[most_rotary_width], normal[most_rotary_width];
    for (std::int64_t token = begin; token < end; ++token) {
      const std::int64_t row = token * shape.columns();
      find_turns(shape, token, Sum<T>{1}, turns);
      for (std::int64_t head = 0; head < shape.turned_heads(); ++head) {
        const std::int64_t at = row + head * shape.width;
        rstd[token * shape.turned_heads() + head] =
            normalise(shape.width, static_cast<Sum<T>>(epsilon), loaded(shape.width, qkv + at, x),
                      head < shape.heads ? gains.query : gains.key, normal);
        Sum<T>* const to = target(y + at, normal);
        turn(shape.half(), turns, normal, to);
        store(shape.width, to, y + at);
      }
      copy_values(shape, qkv + row, y + row);
    }
  });
}

template <class T>
void normed_rotary_backward(const RotaryShape& shape, const NormedRotaryGradient<T>& of) {
  const Gains<T> gains(shape.width, of.query_gain, of.key_gain);
  GainSums<T> sums(shape);
  parallel_for(shape.tokens, sums.run(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t token = begin; token < end; ++token) token_backward(shape, of, gains, token, sums);
  });
  if (of.dquery_gain != nullptr) sums.write(of.dquery_gain, of.dkey_gain);
}

template void rotary(const RotaryShape&, const float*, float*);
template void rotary(const RotaryShape&, const double*, double*);
template void rotary(const RotaryShape&, const Bfloat16*, Bfloat16*);
template void rotary(const RotaryShape&, const Float16*, Float16*);
template void rotary_backward(const RotaryShape&, const float*, float*);
template void rotary_backward(const RotaryShape&, const double*, double*);
template void rotary_backward(const RotaryShape&, const Bfloat16*, Bfloat16*);
template void rotary_backward(const RotaryShape&, const Float16*, Float16*);
template void normed_rotary(const RotaryShape&, double, const float*, const float*, const float*, float*,
                            float*);
template void normed_rotary(const RotaryShape&, double, const double*, const double*, const double*, double*,
                            double*);
template void normed_rotary(const RotaryShape&, double, const Bfloat16*, const Bfloat16*, const Bfloat16*,
                            Bfloat16*, float*);
template void normed_rotary(const RotaryShape&, double, const Float16*, const Float16*, const Float16*,
                            Float16*, float*);
template void normed_rotary_backward(const RotaryShape&, const NormedRotaryGradient<float>&);
template void normed_rotary_backward(const RotaryShape&, const NormedRotaryGradient<double>&);
template void normed_rotary_backward(const RotaryShape&, const NormedRotaryGradient<Bfloat16>&);
template void normed_rotary_backward(const RotaryShape&, const NormedRotaryGradient<Float16>&);

}  // namespace stowage::cpu
