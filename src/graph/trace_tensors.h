// Reads the tensors of a trace, and checks their uses by ops and the header.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/graph/json_field.h"
#include "stowage/bytes.h"
#include "stowage/graph.h"
#include "stowage/graph_builder.h"

namespace stowage {

// Fields of a trace's lines, and its first line (docs/trace.md).
// Limit of all tensors together: sums stay far from 64 bits.
inline constexpr Bytes most_trace_bytes = Bytes{1} << 60;
inline constexpr double most_trace_seconds = 1e6;
inline constexpr const char* trace_remedy = "correct the line, docs/trace.md says what it may hold";

JsonSource source_of_trace_line(std::size_t line);

// Throws InvalidInput that begins with the line.
[[noreturn]] void refuse_trace_line(std::size_t line, const std::string& why);

// These read a field's value, and throw InvalidInput that names line and field.
std::string trace_name(const JsonField& field);
double number_up_to(const JsonField& field, double most);
Bytes trace_bytes(const JsonField& field);  // returns 1 to most_trace_bytes
std::int64_t trace_count(const JsonField& field);

// First version with "trained", "replayable", "type", "samples" and "tokens".
inline constexpr std::int64_t typed_trace_version = 2;

struct TraceHeader {
  std::int64_t version = 1;
  std::string loss;
  std::string clip;  // empty: none
  std::optional<AdamW> optimizer;
  std::int64_t samples = 0, tokens = 0;  // per step; 0: not known
};
TraceHeader read_trace_header(const JsonField& line);

// Fills the graph's tensors. Refusals throw InvalidInput that names the line.
class TraceTensors {
 public:
  // Requires that `graph` outlives this object. `trainable`: every parameter that is trained must be one that
  // AdamW can train.
  TraceTensors(Graph& graph, std::int64_t version, bool trainable)
      : graph_(graph), version_(version), trainable_(trainable) {}

  // Reads a line with 'tensor', the trace's `number`th.
  void read(std::size_t number, const JsonField& line);
  // Adds a tensor that the field `name` names.
  TensorId add(std::size_t number, const JsonField& name, Tensor tensor);

  // Returns the tensor that the field names; its line must stand above.
  TensorId known(const JsonField& field) const;
  // As `known`, for an operand of `op`, the graph's next op. A write makes the op the tensor's producer.
  TensorId read_by(const Op& op, const JsonField& field) const;
  TensorId written_by(const Op& op, const JsonField& field);
  void set_producer(TensorId id, OpId op) { producers_[id] = op; }

  // Called when all lines are read. Requires that every value is written, and every gradient of a parameter
  // that must be trained.
  void require_complete() const;
  // Returns nullopt if no line names the tensor.
  std::optional<TensorId> find(const std::string& name) const;
  std::size_t line_of(TensorId id) const { return lines_[id]; }
  // Final gradients by tensor: no_id for a tensor that is no parameter.
  const std::vector<TensorId>& gradients() const { return gradients_; }

 private:
  static void read_size(const JsonField& line, Tensor& tensor);
  void set_gradient(const JsonField& of, TensorId gradient);
  bool is_missing(TensorId id) const;
  void require_gradient(TensorId parameter) const;

  Graph& graph_;
  std::int64_t version_;
  bool trainable_;
  Bytes total_ = 0;
  std::unordered_map<std::string, TensorId> by_name_;
  // By tensor.
  std::vector<std::size_t> lines_;
  std::vector<OpId> producers_;
  std::vector<TensorId> gradients_;
};

// Kernel of an op that converts a tensor to another type.
inline constexpr const char* cast_kernel = "cast";

// Narrows parameters of autocast. A parameter in f32 whose only reader is a cast to bf16 or f16, and whose
// gradient is cast from that type, becomes a parameter of that type: its casts are removed, and AdamW keeps
// the rest of its master weight (launch_table.h), as in a graph that GraphBuilder makes in that type. Half
// the bytes cross the link. Other parameters, such as a tied table, stay as they are. Requires that `graph`
// has no update ops yet. `gradients`: each parameter's gradient, by tensor.
void take_masters(Graph& graph, std::vector<TensorId>& gradients);

}  // namespace stowage
