// The tensors of a trace: what its lines say of them, and what ops and the header may then do with them.
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
inline constexpr Bytes most_trace_bytes = Bytes{1} << 60;  // of all tensors: sums stay far from 64 bits
inline constexpr double most_trace_seconds = 1e6;
inline constexpr const char* trace_remedy = "correct the line, docs/trace.md says what it may hold";

JsonSource source_of_trace_line(std::size_t line);

// InvalidInput that begins with the line.
[[noreturn]] void refuse_trace_line(std::size_t line, const std::string& why);

// Each throws InvalidInput that names line and field.
std::string trace_name(const JsonField& field);
double number_up_to(const JsonField& field, double most);
Bytes trace_bytes(const JsonField& field);  // from 1 to most_trace_bytes
std::int64_t trace_count(const JsonField& field);

inline constexpr std::int64_t typed_trace_version =
    2;  // knows "trained", "replayable", "type", "samples", "tokens"

struct TraceHeader {
  std::int64_t version = 1;
  std::string loss;
  std::string clip;  // empty: none
  std::optional<AdamW> optimizer;
  std::int64_t samples = 0, tokens = 0;  // of a step; 0: not known
};
TraceHeader read_trace_header(const JsonField& line);

// Fills the graph's tensors. All that refuses throws InvalidInput that names the line.
class TraceTensors {
 public:
  // `graph` must outlive it. `trainable`: every parameter that is trained must be one that AdamW can train.
  TraceTensors(Graph& graph, std::int64_t version, bool trainable)
      : graph_(graph), version_(version), trainable_(trainable) {}

  // A line with 'tensor', the trace's `number`th.
  void read(std::size_t number, const JsonField& line);
  // `name`: the field that brings it.
  TensorId add(std::size_t number, const JsonField& name, Tensor tensor);

  // The tensor that the field names; it must stand above.
  TensorId known(const JsonField& field) const;
  // The same for an operand of `op`, which is the graph's next. A write makes the op its producer.
  TensorId read_by(const Op& op, const JsonField& field) const;
  TensorId written_by(const Op& op, const JsonField& field);
  void set_producer(TensorId id, OpId op) { producers_[id] = op; }

  // Once all lines are read: that each is written, and each parameter's gradient, if it must be trained.
  void require_complete() const;
  // Nothing: no line describes it.
  std::optional<TensorId> find(const std::string& name) const;
  std::size_t line_of(TensorId id) const { return lines_[id]; }
  // By tensor: of a parameter, its final gradient; else no_id.
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

// The kernel of an op that writes what it reads in another type.
inline constexpr const char* cast_kernel = "cast";

// A parameter in f32 whose only reader is a cast to bf16 or f16, and whose gradient is the cast of one of
// that type, becomes a parameter of that type: its casts go, and AdamW keeps what makes a master weight of it
// (launch_table.h), as for a graph that GraphBuilder makes in that type. Half the bytes cross the link.
// Others, such as a tied table, stay as they are. `graph` has no update ops yet; `gradients`: by tensor, of
// each parameter.
void take_masters(Graph& graph, std::vector<TensorId>& gradients);

}  // namespace stowage
