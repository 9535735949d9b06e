// The launch table binds an op's kernel name to code for one device.
//
// The kernels' contract. N = tokens of the batch (batch * sequence, a sample's tokens adjacent), C = width, V
// = vocabulary, S = sequence. `T` is the graph's work type: f32, bf16, f16, or f64 for checks; A is the type
// it accumulates in: f32 for bf16 and f16, else T. All tensors row-major. Every kernel writes the same bits
// for any number of threads, and finite values if what it reads is finite, up to overflow (a test holds GPT
// and BERT to this).
//
// Where the batch is split, N is a micro-batch's, except that tokens and targets are the whole batch's: the
// op takes N of them from attribute `first_token` on (0 where it is not there), and a mean over targets is
// over all of them, so that the parts of the loss add up to it. All kernels that take tokens or targets know
// it.
//
//   kernel                          reads -> writes                                    attributes
//   embedding                       tokens i32[N], table[V,C] (, positions[S,C])
//                                     -> y[N,C] = table[token] + positions[n % sequence] sequence
//                                   tokens, block[R,C] (, before[N,C]) -> y[N,C]        first_row,
//                                     (may alias before): of a table in blocks, the       vocabulary
//                                     rows from first_row on. y = block[token - first_row] where the block
//                                     has that row, else before, or 0; tokens are below `vocabulary`
//   embedding_backward              tokens, dy[N,C] -> dtable[V,C], or of a block       (first_row,
//                                     dblock[R,C]                                       vocabulary)
//   position_backward               dy[N,C] -> dpositions[S,C]                          sequence
//   layer_norm                      x[N,C], gain[C], bias[C] -> y, mean A[N], rstd A[N]    epsilon
//   layer_norm_backward             x, gain, mean, rstd, dy (, before[N,C]) -> dx (may alias dy)
//                                     (, dgain[C], dbias[C]); `before`, another gradient of x, is added to dx
//   layer_norm_backward_parameters  x, mean, rstd, dy -> dgain[C], dbias[C]
//   rms_norm                        x[N,C], gain[C] -> y, rstd A[N]                     epsilon
//                                     y = x * rstd * gain, rstd = 1 / sqrt(mean of squares + epsilon)
//   rms_norm_backward               x, gain, rstd, dy (, before[N,C]) -> dx (may alias dy) (, dgain[C]);
//                                     `before` as in layer_norm_backward
//   rms_norm_backward_parameters    x, rstd, dy -> dgain[C]
//   linear                          x[N,I], w[I,O] (w[O,I] if transposed=1) (, bias[O]) -> y[N,O]  transposed
//   linear_backward_input           dy[N,O], w -> dx[N,I]                               transposed
//   linear_backward_weight          x[N,I], dy[N,O] -> dw (shape of w)                  transposed
//   linear_backward_bias            dy[N,O] -> dbias[O]
//   linear_gelu                     x[N,I], w, bias[O] -> pre[N,O] = linear, y[N,O] = gelu(pre)
//                                                                                       transposed, form
//   gelu                            x -> y                                              form: "tanh" | "erf"
//   gelu_backward                   x, dy -> dx (may alias dy) (, dbias[O] = column     form
//                                     sums of dx, of matrices)
//   swiglu                          gate, up -> y = gate * sigmoid(gate) * up
//   swiglu_backward                 gate, up, dy -> dgate (may alias dy), dup
//   tanh                            x -> y
//   tanh_backward                   y, dy -> dx (may alias dy)
//   first_token                     x[N,C] -> y[N/S,C]: each sample's first row         sequence
//   first_token_backward            dy[N/S,C] -> dx[N,C]: 0 in the other rows           sequence
//   rotary                          qkv[N,(H+2K)D] (, query_gain[D], key_gain[D])       heads = H, sequence,
//                                     (, begins i32[N]) -> y[N,(H+2K)D]                 key_heads = K, theta
//                                     (, rstd A[N,H+K])                                 (, epsilon, scaling)
//   rotary_backward                 dy (, begins) -> dqkv (may alias dy)                the same
//                                   qkv, query_gain, key_gain, rstd, dy (, begins)
//                                     -> dqkv (may alias dy) (, dquery_gain[D], dkey_gain[D])
//   attention                       qkv[N,(H+2K)D] (, seen i32[N] | begins i32[N])      heads = H, sequence,
//                                     -> out[N,HD], log_sum_exp A[N/S,H,S]              causal, dropout, key
//                                     H heads of queries, then K of keys, then K of     (, key_heads = K,
//                                     values, each D wide; K = H where key_heads is     window, documents,
//                                     not there, and H is a multiple of K. Query head   padding_at_end)
//                                     h reads key head h / (H / K). Keys at positions where seen is 0 get no
//                                     weight; padding_at_end as in nn::AttentionOptions. With window > 0
//                                     query i of a sample sees keys j with 0 <= i - j < window. Where
//                                     `documents` is 1, the optional operand is `begins` instead of `seen`:
//                                     query i sees keys j >= begins[i] alone, the index within the sample at
//                                     which its document begins; begins[i] <= i, and no value is below the
//                                     one before it in the sample. A window and documents need causal = 1
//                                     and no `seen`. Like tokens, seen and begins are the whole batch's
//   attention_backward              qkv, out, log_sum_exp, dout[N,HD] (, seen | begins) the same
//                                     -> dqkv[N,(H+2K)D] (, workspace): gradients of a key head are summed
//                                     over its query heads in their order
//   attention_scores                qkv, log_sum_exp (, seen) -> scores A[N],           attention's, but no
//                                     workspace A[N/S,H,S]: the sum over heads and        window, documents
//                                     queries of the probability that a token has as a key, before dropout.
//                                     Queries where seen is 0 do not count, and such tokens' scores are 0. A
//                                     head's probabilities are added in a fixed order, the heads' sums in a
//                                     tree of adjacent pairs, where missing heads are 0. Like tokens, seen
//                                     is the whole batch's
//   top_tokens                      scores A[N] (, seen i32[N]) -> rows i32[N/S*K]:     sequence, keep = K
//                                     of each sample the K tokens with the highest scores, as numbers below
//                                     N, in rising order. Of equal scores the first comes first; NaN stands
//                                     behind every score, and tokens where seen is 0 behind all others.
//                                     Like tokens, seen is the whole batch's
//   take_rows                       x[N,C], rows i32[M] -> y[M,C]: these rows of x. `rows`, here and
//                                     below, holds rising numbers below N
//   take_rows_backward              dy[M,C], rows -> dx[N,C]: dy in these rows, 0 in the others
//   add_rows                        x[N,C], y[M,C], rows -> x (may alias x), plus y in these rows
//   dropout                         x -> y (may alias x); its backward is itself on dy  probability, key
//   add                             a, b -> a + b; with the attributes, a + dropout(b)  (probability, key)
//   accumulate                      a, b -> a + b (may alias a)
//   tree_sum                        a T[N*S] -> T[S]: the sum of N rows in a tree of    rows = N (, count)
//                                     accumulates of adjacent pairs (tree_sum.h). N is a power of two, at
//                                     most 1024. Of each row, `count` elements count (S where it is not
//                                     there): the others are not read, and their sums are 0. Both may
//                                     be f64 for any T
//   cross_entropy                   logits[N,V], targets i32[N] -> loss f64{}, log_sum_exp A[N]  (vocabulary)
//   cross_entropy_backward          logits, targets, log_sum_exp -> dlogits[N,V]        (vocabulary)
//                                     (mean over the targets >= 0; negative ones are ignored; where fewer
//                                     columns than V count, `vocabulary` says how many: the others are in no
//                                     sum, and their gradients are 0)
//   linear_cross_entropy            x[N,C], w (as linear's), targets i32[N] (, bias[V]) transposed, chunk
//                                     -> loss f64{}, dx[N,C], dw (shape of w),          (, vocabulary)
//                                     workspace (, dbias[V]): linear, cross_entropy and the backward of
//                                     both, `chunk` tokens at a time; the workspace holds the chunk's logits
//                                     T[chunk,V] and then, at the next multiple of 256 bytes, where T is
//                                     bf16 or f16 and chunk < N, f32 sums of dw and dbias
//   head_statistics                 x[N,C], block[R,C], targets i32[N]                  first_row,
//                                     (, before A[3,N]) -> A[3,N] (may alias before),   vocabulary
//                                     workspace T[N,R]: the logits of a head whose weight is in blocks,
//                                     columns from first_row on, are added to each row's statistics: the
//                                     largest logit, the sum of exp(logit - largest), the target's logit,
//                                     -3e38 if no block had that. Columns from `vocabulary` on are padding.
//                                     Rows whose target is negative have 0, 1, 0
//   head_loss                       statistics A[3,N], targets -> loss f64{}: cross_entropy's; NaN if no
//                                     block had a target's logit
//   head_loss_backward              statistics, targets -> factors A[3,N]: log_sum_exp, a, b, such that the
//                                     gradient of a logit is a exp(logit - log_sum_exp), less b at the target
//   head_backward                   x, block, targets, factors (, before[N,C])          first_row,
//                                     -> dx (may alias before), dblock[R,C],            vocabulary
//                                     workspace T[N,R]: `before`, the gradient of x that other blocks gave,
//                                     is added to dx; the sum is rounded once
//   add_loss                        a f64{}, b f64{} -> f64{}: a + b
//   square_sum                      x -> f64{}: sum of squares; or, with attributes,    (pieces = P, piece
//                                     f64[P]: element p is that of x's elements         (, count))
//                                     [p * piece, (p + 1) * piece) below `count` (all where it is not
//                                     there), 0 of none; its bits depend on them and on `piece` alone. The
//                                     last piece ends at `count` or behind it
//   square_sums                     x, y, … -> f64{}, f64{}, …: of each what square_sum
//                                     gives
//   clip                            f64[P] … -> f64{2}: norm = sqrt(sum) / L, scale     clip (, pieces = P)
//                                     scale = clip > 0 && norm > clip ? clip / norm : 1; the sum is that of
//                                     norm_part, and 0 of no inputs. P is 1 where `pieces` is not there
//   norm_part                       f64[P] … -> f64{}: sum. Elements p of all inputs    pieces = P
//                                     are added in the order of the inputs, then these P sums, P a power of
//                                     two, in a tree of adjacent pairs. So the clip of N ranks' norm_parts
//                                     of P / N pieces each, as one f64[N], is the clip of all P pieces
//                                   f64[P] … -> f64[P]: those P sums, which as the first pieces = P
//                                     input of another stand for their inputs
//   adamw                           p, grad, m A, v A, clip f64{2} (, low)              beta1, beta2,
//                                     -> p, m, v (, low), in place; of grad scale / L;  epsilon, weight_decay
//                                     nothing where the norm is not finite. `low` goes
//                                     with bf16 (i16) and f16 (i32): the bits of the f32 master weight are
//                                     those of p as f32 + low. Instead of A, m and v may be bf16 (then with
//                                     key, first_element: element i of v is rounded by the draw of element
//                                     first_element + i), or u8: then two more operands, f32[blocks of 256
//                                     elements], are read and written last, the scales of m and of v.
//                                     Moments of these types and scales are updated in place
//   encode                          x T[…] -> codes u8[coded_bytes]                     bits = 4 | 8
//   decode                          codes u8[coded_bytes] -> x T[…]                     bits
//                                     codes are the coded array of codec.h, of as many bytes as it says for
//                                     the elements of x. T is not f64
// L is StepContext::loss_scale: the gradients that cross_entropy_backward and linear_cross_entropy write, and
// the factors a and b of head_loss_backward, are L times those that are said above.
// Rotary's rows are H query heads, K key heads and K value heads of D elements, D even and at most 512.
// Elements i and i + D / 2 of each query and key head turn by the angle p f[i]; value heads are copied.
// Position p is n % sequence, less begins[n] if `begins` is read: the index within its sample of the first
// token of n's document, negative if that began so many tokens before the sample (a text that is continued).
// Like tokens, `begins` is the whole batch's. f[i] is theta^(-2 i / D), or that scaled
// as nn::RotaryScaling says by `factor`, `low_frequency_factor`, `high_frequency_factor` and
// `original_positions`, rounded to f32. The angle is the product in f32 of p and f[i] for every T, so that
// f64 says what the others should be; up to 2^20 its sin and cos are right to 2^-52. With gains,
// each query and key head is first normalised (rstd = 1 / sqrt(average of its squares + epsilon)) and
// multiplied by the gain. Backward turns back. All is rounded once.
// Dropout draws element e of the batch from Philox4x32-10 with key (seed, attribute key) and counter
// (e / 4, step), word e % 4. An op's element 0 is the batch's element `first_element`, an integer attribute
// that is 0 where it is not there, so that splitting the batch changes no mask.
// Attributes `key`, `sequence`, `heads`, `key_heads`, `causal`, `window`, `documents`, `padding_at_end`,
// `chunk`, `first_row`, `vocabulary`, `transposed`, `rows`, `count`, `original_positions`, `pieces`, `piece`,
// `bits` and `keep` are integers; the others are doubles unless quoted.
// The kernels of a pipeline's stages, of which no table here has code:
//   receive           -> values...: as another stage has sent them in this step
//   send              values... -> (nothing): to the stages that receive them
// Two kernels have no code in a table, since the engine has its Communicator make them:
//   gather            share[S] -> whole[E]: the shares of all ranks, in their order, up to E elements
//   exchange          whole[E] -> shares[N,S]: in row q, from rank q, the elements of this rank's share; the
//                                     end of a row that has fewer is left as it is
// An update may also be made in two parts around the gate (plan.h), by kernels of these names, with an undo
// record (LaunchArguments::record) of undo_record_bytes, or of value_record_bytes where m is bf16 or u8:
//   adamw.speculate   as adamw with the scale 1, in place, without a look at `clip`; tile by tile, and tiles
//                     that it cannot take back within the record, or whose gradient is not finite, stay as
//                     they were. Where StepContext::speculate is false, all do
//   adamw.finish      after adamw.speculate: all is as if adamw alone had run
//   adamw.undo        after adamw.speculate: all is as before it
// A record of zeros says that nothing was made, and so does one after the latter two. A table without these
// has all updates made behind the gate.
// With Plan::optimizer_in_backward, host updates before the gate run one more:
//   adamw.unclipped   as adamw with the scale 1, without a look at `clip`
// Tensors of type f64 or i32 above are so for any T. Kernels may use scratch of at most 256 KiB per
// thread (the counterpart of a GPU's shared memory); anything larger is a workspace of the graph. On the CPU,
// kernels that widen rows of bf16 or f16 may take more: attention 8 S times the head's width in f32 for each
// thread, layer_norm and rms_norm 4 C. The backward of rotary with norms takes at most 300 KiB.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "stowage/graph.h"
#include "stowage/undo_record.h"

namespace stowage {

// The values that change from step to step. The engine keeps one copy that kernels read when they run.
struct StepContext {
  std::uint64_t step = 0;  // number of the step, from 0
  std::uint64_t seed = 0;
  double learning_rate = 0;
  bool speculate = true;  // whether updates before the gate are made
  // The factor by which the loss, and so every gradient of the step, is multiplied: a power of two.
  double loss_scale = 1;
  // Number of the steps before `step` that changed no weight; AdamW's own count leaves them out.
  std::uint64_t skipped_steps = 0;
};

struct Operand {
  void* data = nullptr;            // device address, or host address on the host lane
  const Tensor* tensor = nullptr;  // the operand's type and shape
};

struct LaunchArguments {
  const Op* op = nullptr;
  std::span<const Operand> reads;   // operands in the order of op->reads
  std::span<const Operand> writes;  // operands in the order of op->writes
  StepContext step;
  void* stream = nullptr;         // the lane's native stream; null where kernels run in place
  std::span<std::byte> record{};  // an update's undo record
};

using Kernel = void (*)(const LaunchArguments&);

// Makes several ops of one kernel by one launch, at most most_joint_updates of them: or throws, and has made
// none. Their operands have the same types, and none writes what another reads or writes.
using JointKernel = void (*)(std::span<const LaunchArguments>);
inline constexpr std::size_t most_joint_updates = 64;

class LaunchTable {
 public:
  // Adds a kernel, or replaces the one of this name together with its parts ("<name>.undo") and its joint
  // kernel.
  void add(std::string name, Kernel kernel);
  // Adds or replaces the joint kernel beside the kernel of this name. The engine makes consecutive updates of
  // the compute lane by it.
  void add_joint(std::string name, JointKernel kernel);
  // Throws InvalidInput that names op and kernel when the name is unknown.
  Kernel find(const Op& op) const;
  Kernel find_if_present(const std::string& name) const;  // null if there is no such kernel
  JointKernel find_joint(const std::string& name) const;  // likewise

 private:
  std::map<std::string, Kernel, std::less<>> kernels_;
  std::map<std::string, JointKernel, std::less<>> joint_kernels_;
};

// Kernels for the CPU, used by the simulated device, the host lane and checks: work types f32, bf16 and f16
// through oneDNN, f64 as plain loops.
LaunchTable cpu_launch_table();

}  // namespace stowage
