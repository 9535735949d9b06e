#include "offload/engine/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "stowage/error.h"
#include "stowage/evaluate.h"

namespace stowage {
namespace {

bool lives_across_steps(const Tensor& tensor) {
  return tensor.kind == TensorKind::parameter || tensor.kind == TensorKind::optimizer_state;
}

}  // namespace

State::State(Staging& staging, const Graph& graph, const Plan& plan, std::span<const TensorPlace> places,
             const HostMemory& host, const Arena& arena)
    : staging_(staging), graph_(graph), plan_(plan), homes_(graph.tensors.size()) {
  const std::vector<std::vector<TensorId>> slices = graph.slices();
  for (TensorId id = 0; id < graph.tensors.size(); ++id) {
    if (!lives_across_steps(graph.tensor(id))) continue;
    if (slices[id].empty()) homes_[id].push_back(home_of(id, places[id], host, arena));
    for (const TensorId slice : slices[id]) homes_[id].push_back(home_of(slice, places[slice], host, arena));
  }
}

State::Home State::home_of(TensorId piece, const TensorPlace& place, const HostMemory& host,
                           const Arena& arena) const {
  const Bytes begin = graph_.offset_in_whole(piece), bytes = graph_.tensor(piece).bytes();
  Home home{.begin = begin, .end = begin + bytes};
  if (host.bucket(place.bucket) != nullptr) home.host = host.bucket(place.bucket) + place.offset;
  for (const Lifetime& lifetime : plan_.lifetimes)
    if (lifetime.bucket == place.bucket && lifetime.end == no_id)
      home.device = arena.at(lifetime.offset + place.offset, bytes);
  home.device_leads = home.device != nullptr && (home.host == nullptr || updated_on_device(piece));
  if (home.host == nullptr && home.device == nullptr)
    throw InvalidInput(
        fmt::format("the plan keeps '{}' nowhere from step to step: plan again", graph_.tensor(piece).name));
  return home;
}

bool State::updated_on_device(TensorId tensor) const {
  return std::any_of(plan_.instructions.begin(), plan_.instructions.end(),
                     [&](const Instruction& instruction) {
                       if (instruction.kind != InstructionKind::commit || runs_on_host(instruction))
                         return false;
                       const auto& writes = graph_.op(instruction.op).writes;
                       return std::find(writes.begin(), writes.end(), tensor) != writes.end();
                     });
}

void State::initialise(std::uint64_t seed, bool parameters) {
  std::vector<std::byte> value;
  for (TensorId id = 0; id < graph_.tensors.size(); ++id) {
    const Tensor& tensor = graph_.tensor(id);
    if (!lives_across_steps(tensor)) continue;
    if (parameters && tensor.kind == TensorKind::parameter) {
      value.resize(tensor.bytes());
      initialize(tensor, seed, value);
      write(id, value);
    } else {
      for (const Home& home : homes_[id]) {
        if (home.device == nullptr) continue;
        staging_.upload(home.device, home.end - home.begin, [](Bytes, std::span<std::byte> piece) {
          std::memset(piece.data(), 0, piece.size());
        });
      }
    }
  }
}

const std::vector<State::Home>& State::homes(TensorId tensor) const {
  if (tensor >= homes_.size() || homes_[tensor].empty())
    throw InvalidInput(
        fmt::format("tensor {} keeps no value from step to step: only parameters and "
                    "optimizer state can be read and written",
                    tensor < homes_.size() ? graph_.tensor(tensor).name : std::to_string(tensor)));
  return homes_[tensor];
}

template <class Work>
void State::for_each_home(TensorId tensor, Bytes offset, Bytes bytes, Work work) const {
  for (const Home& home : homes(tensor)) {
    const Bytes from = std::max(home.begin, offset), to = std::min(home.end, offset + bytes);
    if (from < to) work(home, from, to);
  }
}

void State::require_inside(TensorId tensor, Bytes offset, Bytes bytes) const {
  const Bytes all = graph_.tensor(tensor).bytes();
  if (offset > all || bytes > all - offset)
    throw InvalidInput(fmt::format("'{}' has {} bytes, and {} from {} on are not all of them",
                                   graph_.tensor(tensor).name, all, bytes, offset));
}

std::vector<std::byte> State::read(TensorId tensor) {
  homes(tensor);  // throws before the size of an unknown tensor is taken
  std::vector<std::byte> value(graph_.tensor(tensor).bytes());
  read(tensor, 0, value);
  return value;
}

void State::read(TensorId tensor, Bytes offset, std::span<std::byte> into) {
  homes(tensor);
  require_inside(tensor, offset, into.size());
  for_each_home(tensor, offset, into.size(), [&](const Home& home, Bytes from, Bytes to) {
    const std::span<std::byte> part = into.subspan(from - offset, to - from);
    if (home.device_leads)
      staging_.download(part, home.device + (from - home.begin));
    else
      std::memcpy(part.data(), home.host + (from - home.begin), part.size());
  });
}

void State::write(TensorId tensor, std::span<const std::byte> value) {
  homes(tensor);
  if (value.size() != graph_.tensor(tensor).bytes())
    throw InvalidInput(fmt::format("'{}' takes {} bytes, not {}", graph_.tensor(tensor).name,
                                   graph_.tensor(tensor).bytes(), value.size()));
  write(tensor, 0, value);
}

void State::write(TensorId tensor, Bytes offset, std::span<const std::byte> value) {
  homes(tensor);
  require_inside(tensor, offset, value.size());
  for_each_home(tensor, offset, value.size(), [&](const Home& home, Bytes from, Bytes to) {
    const std::span<const std::byte> part = value.subspan(from - offset, to - from);
    if (home.host != nullptr) std::memcpy(home.host + (from - home.begin), part.data(), part.size());
    if (home.device != nullptr) staging_.upload(home.device + (from - home.begin), part);
  });
}

void State::fill(TensorId tensor, const Staging::FillPiece& piece) {
  for (const Home& home : homes(tensor)) {
    const Bytes bytes = home.end - home.begin;
    const auto rows = [&](Bytes offset, std::span<std::byte> part) { piece(home.begin + offset, part); };
    if (home.host == nullptr) {
      staging_.upload(home.device, bytes, rows);
      continue;
    }
    const std::span<std::byte> own(home.host, bytes);
    rows(0, own);
    if (home.device != nullptr) staging_.upload(home.device, own);
  }
}

LentParameter State::lent(TensorId parameter) const {
  const Home& first = homes(parameter).front();
  const Bytes bytes = graph_.tensor(parameter).bytes();
  // Slices of a parameter are in one bucket, one behind the other.
  return {first.device, first.device == nullptr ? first.host : nullptr, bytes};
}

void State::refresh_lent() {
  for (TensorId id = 0; id < graph_.tensors.size(); ++id) {
    if (graph_.tensor(id).kind != TensorKind::parameter) continue;
    for (const Home& home : homes_[id])
      if (home.device != nullptr && !home.device_leads)
        staging_.upload(home.device, {home.host, home.end - home.begin});
  }
}

Inputs::Inputs(const Graph& graph, std::span<const TensorPlace> places, const HostMemory& host)
    : graph_(graph) {
  for (TensorId id = 0; id < graph.tensors.size(); ++id) {
    if (graph.tensor(id).kind != TensorKind::input) continue;
    std::byte* const bucket = host.bucket(places[id].bucket);
    inputs_.push_back({id, bucket == nullptr ? nullptr : bucket + places[id].offset, nullptr});
  }
}

void Inputs::load(std::span<const InputData> inputs) {
  for (Input& input : inputs_) input.given = nullptr;
  for (const InputData& given : inputs) match(given);
  for (const Input& input : inputs_)
    if (input.given == nullptr)
      throw InvalidInput(fmt::format("input '{}' is missing: give every input of the graph to each step",
                                     graph_.tensor(input.tensor).name));
  for (const Input& input : inputs_)
    if (input.data != nullptr)
      std::memcpy(input.data, input.given->values.data(), input.given->values.size_bytes());
}

void Inputs::match(const InputData& given) {
  const auto input = std::find_if(inputs_.begin(), inputs_.end(), [&given](const Input& candidate) {
    return candidate.tensor == given.tensor;
  });
  if (input == inputs_.end())
    throw InvalidInput(fmt::format("tensor {} is no input of this graph: leave it out", given.tensor));
  const Tensor& tensor = graph_.tensor(given.tensor);
  if (input->given != nullptr) throw InvalidInput(fmt::format("input '{}' is given twice", tensor.name));
  if (given.values.size_bytes() != tensor.bytes())
    throw InvalidInput(fmt::format("input '{}' has {} bytes, but the graph was built for {}", tensor.name,
                                   given.values.size_bytes(), tensor.bytes()));
  input->given = &given;
}

}  // namespace stowage
