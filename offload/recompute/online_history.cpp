#include "offload/recompute/online_history.h"

#include <fmt/format.h>

#include <algorithm>

namespace stowage::online {

RememberedTensor& OnlineHistory::declare(std::string name, Bytes bytes) {
  auto tensor = std::make_unique<RememberedTensor>();
  tensor->id = OnlineTensor{next_id_};
  tensor->name = std::move(name);
  tensor->bytes = bytes;
  return *tensors_.emplace(next_id_++, std::move(tensor)).first->second;
}

RememberedTensor& OnlineHistory::find(OnlineTensor id) const {
  const auto found = tensors_.find(static_cast<std::uint64_t>(id));
  if (found == tensors_.end() || found->second->released)
    throw InvalidInput(
        fmt::format("tensor {} was released, or declared elsewhere: name only what is declared here and not "
                    "released yet",
                    static_cast<std::uint64_t>(id)));
  return *found->second;
}

void OnlineHistory::remember(std::unique_ptr<RememberedOp> op) {
  for (RememberedTensor* read : op->reads)
    if (std::find(read->readers.begin(), read->readers.end(), op.get()) == read->readers.end())
      read->readers.push_back(op.get());
  for (RememberedTensor* write : op->writes) write->producer = op.get();
  RememberedOp* const key = op.get();
  ops_.emplace(key, std::move(op));
}

void OnlineHistory::collect(OnlineTensor id, const std::function<void(RememberedTensor&)>& forget) {
  to_collect_.assign(1, id);
  while (!to_collect_.empty()) {
    const auto found = tensors_.find(static_cast<std::uint64_t>(to_collect_.back()));
    to_collect_.pop_back();
    if (found == tensors_.end()) continue;
    RememberedTensor& tensor = *found->second;
    if (!tensor.idle() && !tensor.kept) continue;
    if (tensor.producer != nullptr) {
      const auto& results = tensor.producer->writes;
      if (std::all_of(results.begin(), results.end(),
                      [](const RememberedTensor* each) { return each->idle() || each->kept; }))
        forget_op(tensor.producer, forget);
    } else if (tensor.idle()) {
      forget(tensor);
      tensors_.erase(found);
    }
  }
}

void OnlineHistory::forget_op(RememberedOp* op, const std::function<void(RememberedTensor&)>& forget) {
  for (RememberedTensor* write : op->writes) {
    write->producer = nullptr;
    if (!write->idle()) continue;
    forget(*write);
    tensors_.erase(static_cast<std::uint64_t>(write->id));
  }
  for (RememberedTensor* read : op->reads) {
    std::erase(read->readers, op);
    to_collect_.push_back(read->id);
  }
  ops_.erase(op);
}

bool OnlineHistory::meet(RememberedOp* op) {
  if (op->visit == visit_) return false;
  op->visit = visit_;
  return true;
}

double OnlineHistory::rebuild_seconds(const RememberedTensor& tensor) {
  ++visit_;
  meet(tensor.producer);
  return tensor.producer->seconds + evicted_above(tensor.producer) + evicted_below(tensor);
}

double OnlineHistory::evicted_above(RememberedOp* op) {
  double seconds = 0;
  to_climb_.assign(1, op);
  while (!to_climb_.empty()) {
    RememberedOp* const current = to_climb_.back();
    to_climb_.pop_back();
    for (const RememberedTensor* read : current->reads) {
      if (read->live() || !meet(read->producer)) continue;
      seconds += read->producer->seconds;
      to_climb_.push_back(read->producer);
    }
  }
  return seconds;
}

double OnlineHistory::evicted_below(const RememberedTensor& tensor) {
  double seconds = 0;
  to_descend_.assign(1, &tensor);
  while (!to_descend_.empty()) {
    const RememberedTensor* const current = to_descend_.back();
    to_descend_.pop_back();
    for (RememberedOp* reader : current->readers) {
      const auto missing = [](const RememberedTensor* each) { return !each->live() && !each->idle(); };
      if (std::none_of(reader->writes.begin(), reader->writes.end(), missing) || !meet(reader)) continue;
      seconds += reader->seconds;
      std::copy_if(reader->writes.begin(), reader->writes.end(), std::back_inserter(to_descend_), missing);
    }
  }
  return seconds;
}

}  // namespace stowage::online
