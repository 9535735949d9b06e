// A Graph: the ops of one training step in program order: forward, backward, update.
//
// Plain data, built by GraphBuilder (graph_builder.h), saved and read as JSON. Building a graph
// allocates no tensor memory and needs no device. Not thread-safe while it is being changed; const
// use from many threads is fine.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "stowage/bytes.h"
#include "stowage/data_type.h"

namespace stowage {

enum class TensorKind : std::uint8_t {
  parameter,        // lives across steps; written by its update op if it is trained, read by everything else
  gradient,         // gradient of a parameter: the accumulated, final one or a part of it
  optimizer_state,  // lives across steps; touched by update ops alone
  activation,       // made and consumed within a step: forward values and their gradients
  input,            // values that the caller gives each step (tokens, targets)
  workspace,        // scratch of exactly one op: in its `writes`, read by nobody
  slice,            // rows of another tensor, without bytes of its own
};
std::string_view to_string(TensorKind kind);

enum class Phase : std::uint8_t { forward, backward, update };
std::string_view to_string(Phase phase);

using TensorId = std::uint32_t;
using OpId = std::uint32_t;
inline constexpr std::uint32_t no_id = 0xffffffffU;

// A parameter's initial values: normal draws from a counter-based generator keyed by (seed, tensor name).
struct Initializer {
  double mean = 0;
  double standard_deviation = 0;  // 0: every element is `mean`
  // Number of the draw that element 0 takes; even. A rank's share of a parameter begins at its place in the
  // whole, so that all shares together have the values of the whole.
  std::int64_t first_element = 0;
  friend bool operator==(const Initializer&, const Initializer&) = default;
};

struct Tensor {
  std::string name;  // unique in the graph, e.g. "h.3.mlp.fc.weight"
  DataType type = DataType::f32;
  std::vector<std::int64_t> shape;  // row-major, outermost first; {} is a scalar
  TensorKind kind = TensorKind::activation;
  Initializer initializer;  // initial value of a parameter; optimizer state starts at zero
  // If this is a slice, it is rows [first_row, first_row + shape[0]) of the tensor `whole`.
  TensorId whole = no_id;
  std::int64_t first_row = 0;
  bool trained = true;  // false: a parameter without gradient that no update changes

  std::int64_t elements() const;  // product of shape; 1 for a scalar
  Bytes bytes() const;            // elements() * size_of(type)
  friend bool operator==(const Tensor&, const Tensor&) = default;
};

// The address of a tensor of `bytes` in device memory is a multiple of this in every plan: its size rounded
// up to a power of two, at least 8 and at most 256. Kernels count on it.
inline constexpr Bytes most_tensor_alignment = 256;
constexpr Bytes tensor_alignment(Bytes bytes) {
  return std::bit_ceil(std::clamp(bytes, Bytes{8}, most_tensor_alignment));
}

using Attribute = std::variant<std::int64_t, double, std::string>;
using Attributes = std::map<std::string, Attribute, std::less<>>;

// `writes[write]` may occupy the bytes of `reads[read]`. Requires that the op is the last reader of that
// tensor in the step and that the sizes are equal; the planner gives both the same bytes. A tensor that is
// both read and written (an update in place) needs no entry.
struct Alias {
  std::uint32_t write = 0;
  std::uint32_t read = 0;
  friend bool operator==(const Alias&, const Alias&) = default;
};

// The cost of one execution of the op: on any machine by flops and bytes, or as measured on one machine.
struct OpCost {
  double flops = 0;  // floating-point operations
  double bytes = 0;  // memory traffic, reads plus writes
  // The time measured on the device, launch included (trace.h); it replaces flops and bytes there. The time
  // of host steps still follows from `bytes`.
  std::optional<double> seconds{};
  double peer_bytes = 0;  // received from the other ranks, padding included
  // The type in which the op computes; Machine::flops_of has its rate. Not set: the graph's (work_type in
  // machine_file.h).
  std::optional<DataType> type{};
  friend bool operator==(const OpCost&, const OpCost&) = default;
};

// An operation of the step. A launch table (launch_table.h) binds `kernel` to code. Ops are replayable,
// unless they say otherwise: given the same inputs, step and seed, they write the same bits, and nothing
// else. Randomness is counter-based (Philox keyed by seed, step, sample, op), so a replay needs no saved
// state. Accumulation is an op that names what it adds to. A forward or backward op has at most 1,024 inputs
// and activations, since planning time grows with their square.
struct Op {
  std::string name;    // unique, e.g. "h.3.mlp.fc.linear"
  std::string kernel;  // e.g. "linear"; the contract of each is in launch_table.h
  Attributes attributes;
  std::vector<TensorId> reads;
  std::vector<TensorId> writes;
  std::vector<Alias> may_alias;
  Phase phase = Phase::forward;
  // The op's micro-batch of its half-block (or embedding, or head). Forward ops of a unit are consecutive; a
  // backward op has the unit of its forward op. Update ops have `no_id`.
  std::uint32_t unit = no_id;
  OpCost cost;
  bool replayable = true;  // false: no plan computes it again
  friend bool operator==(const Op&, const Op&) = default;
};
// True for the kernels that a Communicator makes, `gather` and `exchange` (launch_table.h).
inline bool is_collective(const Op& op) { return op.kernel == "gather" || op.kernel == "exchange"; }
// True for the kernels that move values between the stages of a pipeline, `send` and `receive`.
inline bool is_between_stages(const Op& op) { return op.kernel == "send" || op.kernel == "receive"; }

// The part of the batch that a graph computes: number `rank` of `ranks` equal, consecutive parts.
struct BatchShare {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  friend bool operator==(const BatchShare&, const BatchShare&) = default;
};

// A *chunk grid* cuts a large parameter, its final gradient and its optimizer state into the same slices,
// each of some whole rows. Parts of the norm, updates and optimizer state go by slices, so that a plan may
// keep and update each where it likes. The grid is part of the graph and of its bits: no budget, device or
// bucket changes it. Checkpoints and model files name the wholes.
//   "wte.weight"                 parameter        [49152, 768]   forward and backward read it
//   "wte.weight.slice1"          its slice        [5504, 768]    from row 5504 on
//   "wte.weight.adam_m"          optimizer state  [49152, 768]   no op touches it but in slices, so a plan
//                                                                may have each slice elsewhere
// The op "wte.weight.adamw.slice1" updates the slice.
//
// The slices of a tensor stand behind it, in order, and cover all its rows. Update ops read and write a cut
// parameter in slices alone. Its final gradient is written as a whole by one op and read in slices. The
// slices of its optimizer state have the shapes of the parameter's slices, or are one f32 for each block of
// their elements (moments.h).
struct Graph {
  std::vector<Tensor> tensors;
  std::vector<Op> ops;  // program order: forward, then backward, then update
  // E.g. "h.3.mlp", "micro.1.h.3.mlp". Units are numbered in forward order: half-block by half-block, and
  // within it by micro-batch.
  std::vector<std::string> unit_names;
  // Number of equal parts of the batch, whose gradients are summed. Program order is layer-major: backward
  // goes from the last half-block to the first, and within each through micro-batches 0, 1, … as forward
  // does.
  std::uint32_t micro_batches = 1;
  // The half-blocks at which the second and later *ranges* of a stage of a pipeline begin (stage.h), rising:
  // between two ranges other devices work. Empty for one range, and for one micro-batch.
  std::vector<std::uint32_t> range_begins;
  // Number of equal, consecutive groups of micro-batches; a power of two that divides micro_batches. The
  // gradients of a parameter's use, and the loss, are added up over the groups as TreeSum (tree_sum.h) says.
  std::uint32_t gradient_groups = 1;
  // Several devices, the ranks, can train one model together. A rank has a graph of its own, with its part of
  // the batch and its share of every parameter, gradient and optimizer state. The kernels `gather` and
  // `exchange` bring the other ranks' shares (Communicator). The graphs of all ranks are alike but for
  // attributes and initializers, so one plan serves all.
  BatchShare share{};
  // f64 scalar, written by a forward or backward op; copied to the host every step. no_id in a stage of a
  // pipeline that is not the last.
  TensorId loss = no_id;
  TensorId clip = no_id;                 // f64 {2}: global gradient norm, scale; written by the "clip" op
  std::int64_t samples = 0, tokens = 0;  // per step, for reports; 0: not known

  const Tensor& tensor(TensorId id) const { return tensors[id]; }
  // True for a parameter, or a slice of one, that updates change.
  bool is_trained(TensorId id) const {
    return kind_of(id) == TensorKind::parameter && tensors[whole_of(id)].trained;
  }
  const Op& op(OpId id) const { return ops[id]; }
  // Returns the tensor whose rows a slice is; any other tensor itself.
  TensorId whole_of(TensorId id) const { return is_slice(id) ? tensors[id].whole : id; }
  bool is_slice(TensorId id) const { return tensors[id].kind == TensorKind::slice; }
  // Returns the tensor's kind; for a slice the kind of its whole tensor.
  TensorKind kind_of(TensorId id) const { return tensors[whole_of(id)].kind; }
  Bytes offset_in_whole(TensorId id) const;  // position of a slice in its whole tensor; 0 for others
  // Returns for each tensor its slices, in order.
  std::vector<std::vector<TensorId>> slices() const;
  std::uint32_t half_block_of(std::uint32_t unit) const { return unit / micro_batches; }
  std::uint32_t micro_batch_of(std::uint32_t unit) const { return unit % micro_batches; }
  // Returns the number of the range that the unit is in, from 0.
  std::uint32_t range_of(std::uint32_t unit) const {
    return static_cast<std::uint32_t>(
        std::upper_bound(range_begins.begin(), range_begins.end(), half_block_of(unit)) -
        range_begins.begin());
  }
  bool is_in_last_range(std::uint32_t unit) const { return range_of(unit) == range_begins.size(); }
  friend bool operator==(const Graph&, const Graph&) = default;
};

// True if so many groups are possible: a power of two that divides `micro_batches`.
constexpr bool are_gradient_groups(std::uint32_t groups, std::uint32_t micro_batches) {
  return std::has_single_bit(groups) && micro_batches % groups == 0;
}

// Throws InvalidInput naming the first op or tensor that breaks the contract above: an id out of
// range, a tensor with two producers (or none, unless parameter, optimizer state or input), a read
// before the write, an alias that is not the last read, phases or units out of order, a half-block
// without some micro-batch, groups that do not divide these, ranges that do not rise, names not unique, a
// shape that overflows, slices that are no chunk grid.
void check(const Graph& graph);

// Versioned JSON, loss-free; version 6 where there are several ranges, 5 where a parameter is not trained, an
// op is not replayable or has a type, or samples or tokens are known, 4 where there are several gradient
// groups or ranks, 3 where a tensor is a slice, 2 where an op has measured seconds, else 1. `graph_from_json`
// treats its text as hostile: InvalidInput, never worse.
std::string to_json(const Graph& graph);
Graph graph_from_json(std::string_view text);

}  // namespace stowage
