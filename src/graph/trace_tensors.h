// The tensors of a trace: what its lines say of them, and what ops and the header may then do with them.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "src/graph/trace_fields.h"
#include "stowage/graph.h"

namespace stowage {

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

}  // namespace stowage
