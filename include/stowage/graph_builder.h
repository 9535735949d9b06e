// GraphBuilder: records forward ops with their backward rules, then emits backward and update ops.
//
// Not thread-safe. The Transformer ops that use it are in nn.h; an own op is added with `op()`.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stowage/codec.h"
#include "stowage/graph.h"
#include "stowage/moments.h"
#include "stowage/tree_sum.h"

namespace stowage {

// A tensor of the graph under construction.
struct Value {
  TensorId id = no_id;
  explicit operator bool() const { return id != no_id; }
};

// The parameters that AdamW's weight decay shrinks: those of two or more dimensions (matrices, embeddings),
// as the references of GPT-2 and BERT do, or biases and the norms' gains too.
enum class DecayedParameters : std::uint8_t { matrices, all };
std::string_view to_string(DecayedParameters decayed);  // "matrices", "all"

// The rule that cuts parameters into slices (graph.h). It cuts parameters so large that a plan gains by
// having a part of one on the device; a plan of many smaller parameters has some of them there, and more ops
// make planning longer. The rule knows the graph alone.
struct ChunkGrid {
  Bytes slice_bytes = 8_MiB;      // least size, roughly: so large a transfer is efficient on any link
  std::int64_t most_slices = 16;  // limit per parameter: slices of 6 % of it; 1: no parameter is cut
  // A parameter is cut only if it has bytes for so many slices.
  std::int64_t least_slices = 4;
  // A parameter is cut only if it has this fraction of all parameters' bytes: GPT-2's and BERT-base's token
  // table has, a layer of a deep model has not.
  double least_share = 0.15;
};

// AdamW (Loshchilov & Hutter, "Decoupled Weight Decay Regularization", algorithm 2), with the
// global gradient norm clipped to `clip` (0: the norm is reported, never clipped).
// The learning rate comes with every step (StepOptions in engine.h).
// beta1, beta2, epsilon and weight decay are those of GPT-3 (Brown et al., "Language Models are Few-Shot
// Learners", appendix B), since GPT-2's paper says none; nanoGPT trains GPT-2 with them too. BERT was trained
// with beta2 0.999, epsilon 1e-6 and weight decay 0.01 (google-research/bert, optimization.py).
struct AdamW {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  DecayedParameters decayed = DecayedParameters::matrices;
  double clip = 1.0;
  Moments moments = Moments::f32;
  ChunkGrid grid{};
};

class GraphBuilder {
 public:
  // Emits an op's backward ops. `output_gradients` has the gradient of each written value, in the order of
  // `writes` (an empty Value if none flowed). The rule calls `add_gradient` for each input that wants one.
  using BackwardRule = std::function<void(GraphBuilder&, const std::vector<Value>& output_gradients)>;

  struct OpDescription {
    std::string name;  // made unique by the builder's scope prefix
    std::string kernel;
    Attributes attributes;
    std::vector<Value> reads;
    std::vector<Value> writes;
    std::vector<Alias> may_alias;
    OpCost cost;  // bytes 0: counts each operand's bytes once
    // True: the op writes the loss (or a micro-batch's part of it) and, taking the loss's own gradient as 1,
    // its inputs' gradients as well; `finish` makes it the first backward op of its unit. It must stand in
    // the last half-block, with nothing but `add_loss` behind it in its unit; its rule adds no op.
    bool writes_gradients = false;
    bool replayable = true;  // Op::replayable
  };
  // The micro-batch of the unit that is being built.
  struct MicroBatch {
    std::uint32_t index = 0;  // the micro-batch's number in this graph
    std::uint32_t count = 1;
    BatchShare share{};
    // Its number in the whole batch, which has `parts()` micro-batches.
    std::uint32_t part() const { return share.rank * count + index; }
    std::uint32_t parts() const { return share.ranks * count; }
  };

  // `work` is the type of parameters and activations: f32, bf16, f16, or f64 for checks. `trained`: none
  // makes every parameter a frozen_parameter, so that `finish` gives an evaluation: forward ops, the loss,
  // and a "clip" op without operands, which ends the step.
  enum class Trained : std::uint8_t { as_made, none };
  explicit GraphBuilder(DataType work = DataType::f32, Trained trained = Trained::as_made);

  DataType work_type() const { return work_; }
  // The type in which kernels add up, and in which statistics and moments are kept: f32 for bf16 and f16,
  // else the work type.
  DataType sum_type() const { return size_of(work_) == 2 ? DataType::f32 : work_; }

  // Gradient accumulation: from here on every half-block is built for `count` equal parts of the batch. Call
  // it before the first unit. The gradients of each use of a parameter are added up over `groups` groups of
  // micro-batches as TreeSum does (tree_sum.h), and so is the loss (sum_loss). All sums have the work type.
  // `groups` is a power of two that divides `count`. If ranks share the batch (`share`), `count` and `groups`
  // are the rank's, while tokens, targets, means and random draws stay those of the whole batch: the ranks'
  // sums, added in the tree of `ranks` groups, have the bits of one graph of ranks * count micro-batches in
  // ranks * groups groups.
  void split_batch(std::uint32_t count, std::uint32_t groups = 1, BatchShare share = {});
  MicroBatch micro_batch() const { return micro_batch_; }

  // `finish` and finish_without_update give a step with coded activations (coded_activations.h), of `bits` an
  // element. Not set: activations stay exact. Throws InvalidInput where the work type is f64.
  void code_activations(std::optional<CodeBits> bits);

  // `begin_unit` opens a new half-block, or the next micro-batch of the previous one (by the same name): all
  // ops until the next call belong to it. A graph without any call is one unit. Names made inside are
  // prefixed "h.3.mlp." while the scope lives, and "micro.1." if the batch is split. Micro-batches must be
  // built alike; in later micro-batches `parameter` returns the first one's parameters.
  void begin_unit(std::string name, std::uint32_t micro_batch = 0);
  void push_scope(std::string name);
  void pop_scope();

  Value parameter(std::string name, std::vector<std::int64_t> shape, Initializer initializer);
  // A frozen parameter is not trained: it has no gradient and no optimizer state.
  Value frozen_parameter(std::string name, std::vector<std::int64_t> shape, Initializer initializer);
  Value input(std::string name, std::vector<std::int64_t> shape, DataType type = DataType::i32);
  Value activation(std::string name, std::vector<std::int64_t> shape, std::optional<DataType> type = {});
  Value workspace(std::string name, Bytes bytes);

  // Appends an op in program order. During `finish`, ops become backward ops of the unit whose rule is
  // running. Checks shapes of aliases; throws InvalidInput that names the op on a misuse.
  void op(OpDescription description, BackwardRule backward = nullptr);

  // Returns sum + part, each the loss of some micro-batches; they all count as the loss, with gradient 1.
  // Knows no groups: sum_loss adds up micro-batches.
  Value add_loss(Value sum, Value part);
  // Adds up the losses of all micro-batches in the order of split_batch, by add_loss. Call it once in each
  // micro-batch of the last half-block, in order. Returns the loss so far: with the last one, the whole.
  Value sum_loss(Value of_micro_batch);

  // Adds the attributes of an op's random draws: a key by its name, the same for all micro-batches, and the
  // number of its first element in the batch, if every micro-batch draws for `elements`.
  void add_random_stream(Attributes& attributes, const std::string& name, std::int64_t elements);

  // True if `of` depends on a parameter, so that a backward rule owes it a gradient.
  bool wants_gradient(Value of) const;
  // For backward rules. `fresh`: this op's own output that nobody else reads, so that a later
  // addition may work in place on it. Several contributions are summed in the order of arrival
  // ("accumulate" ops): of a parameter first those of all micro-batches for each of its uses (split_batch
  // says in which order), then the uses.
  void add_gradient(Value of, Value gradient, bool fresh);
  // Returns the gradient that other rules have given to an activation so far; an empty Value if there is
  // none, or `of` is no activation. An op that can add it to its own gradient of `of` spares an "accumulate"
  // op: it hands the sum to set_gradient, which replaces the gradient so far, instead of to add_gradient. The
  // sum counts as fresh.
  Value gradient_so_far(Value of) const;
  // True if the op that adds to gradient_so_far may do it in place.
  bool is_fresh_so_far(Value of) const;
  void set_gradient(Value of, Value sum);
  // True if the op that consumes `gradient` may write in place: it is fresh, and this rule is its only
  // reader.
  bool may_overwrite(Value gradient) const;
  // Makes a tensor for the gradient of `of`: same shape and type; kind gradient for parameters, else
  // activation. Its name is that of `of` + ".grad" (numbered if there are several).
  Value gradient_like(Value of);

  const Tensor& tensor(Value value) const;

  // Emits backward ops from `loss` (an f64 scalar), then a "square_sum" op for each parameter's gradient (in
  // the backward phase, directly after the op that completes the gradient, in the same unit; vectors of at
  // most 64 KiB that one unit completes share a "square_sums" op behind the last of them), then the "clip" op
  // and one "adamw" op per parameter (update phase) in order of the parameters' first use. Every parameter
  // must receive a gradient unless it is frozen. The builder is spent afterwards. If ranks share the batch,
  // the graph is that of one rank, with shares of parameters, gradients and state and the ops that exchange
  // them (src/graph/share_state.h); its loss is that of all ranks.
  Graph finish(Value loss, const AdamW& optimizer);
  // Forward and backward only, for gradient checks: gradients are left as they are, and parameters whole.
  Graph finish_without_update(Value loss);

  // After finish: returns the final gradient of a parameter or input value; no_id if there is none. If ranks
  // share the batch, the gradient of the parameter's last use is returned.
  TensorId gradient_of(Value of) const;
  // After finish: the summands of gradient_of a parameter, from left to right: for each use the gradient of
  // all micro-batches. Ranks that share a batch add up each of these by itself, so that the bits are those of
  // one device.
  std::vector<TensorId> use_gradients_of(Value parameter) const;

 private:
  struct Gradient {
    Value value{};
    bool fresh = false;
  };
  // The gradients that the micro-batches of the running half-block have given to one use of a parameter.
  struct Use {
    TreeSum<Gradient> sum;
    std::uint32_t micro_batches = 0;
  };
  // An op that writes gradients (OpDescription::writes_gradients), or adds the losses of such ops, on its way
  // from forward to backward.
  struct Turned {
    Op op;
    BackwardRule rule;
  };

  DataType work_;
  Trained trained_;
  Graph graph_;
  std::vector<std::string> scopes_;
  std::uint32_t unit_ = no_id;
  Phase phase_ = Phase::forward;
  bool spent_ = false;
  MicroBatch micro_batch_;
  std::optional<CodeBits> code_bits_;
  std::string half_block_;           // the name of the open unit
  std::vector<BackwardRule> rules_;  // by forward op
  std::vector<bool> turns_;          // by forward op: whether it becomes a backward op
  std::vector<bool> is_loss_;        // by tensor: whether add_loss was given it or made it
  std::map<std::string, TensorId, std::less<>> parameters_;
  std::map<std::string, std::int64_t, std::less<>> random_keys_;
  std::map<std::pair<TensorId, std::uint32_t>, Use> uses_;  // sums by parameter and number of its use
  std::map<TensorId, std::uint32_t> uses_seen_;  // by parameter: number of its uses met in the running unit
  // Gradients by parameter, in the order of their addition.
  std::map<TensorId, std::vector<TensorId>> use_gradients_;
  TreeSum<Value> loss_;
  std::uint32_t losses_ = 0;         // number of losses that sum_loss was given
  OpId running_ = no_id;             // forward op whose rule is running
  std::vector<Gradient> gradients_;  // by tensor, as are the next three
  // Number of gradients that gradient_like made, for their names.
  std::vector<std::uint32_t> gradient_tensors_;
  std::vector<OpId> producers_;  // no_id: none yet
  std::vector<bool> wants_gradient_;

  std::string micro_batch_prefix() const;
  std::string shared(const std::string& name) const;  // returns the name that all micro-batches share
  std::string scoped(const std::string& name) const;
  Value add_tensor(Tensor tensor);
  Value add_parameter(Tensor tensor);
  void require_open(const std::string& what) const;
  void require_unit_used() const;
  void record_writes(const Op& op);
  void check_alias(const Op& op, const Alias& alias) const;
  Gradient added(Gradient before, Value of, Gradient more);
  Gradient accumulated(Value of, Gradient into, Gradient more);
  void add_use(Value of, Gradient gradient);
  void add_to_use(Value of, Value gradient, bool fresh);
  void require_fitting(Value of, Value gradient) const;
  void require_still_wanted(Value of) const;

  std::uint32_t half_blocks() const;
  void backward(Value loss);
  void backward_unit(std::uint32_t unit, std::vector<Turned>& turned, OpId forward_end);
  void require_uses_whole();
  bool depends_on_turned(const Op& op) const;
  std::vector<Turned> take_turned();
  void require_turnable(OpId op) const;
  void run_rule(OpId op);
  void update(const AdamW& optimizer);
  Graph close();
};

}  // namespace stowage
