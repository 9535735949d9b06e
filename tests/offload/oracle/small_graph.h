// Seeded training steps that an exhaustive search can play: chains of a few units, uniform and uneven, with
// machines on which compute, link and host matter in turn.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stowage/graph.h"
#include "stowage/machine.h"

namespace stowage::oracle {

// Unit k makes x[k+1] from x[k] with parameter W[k]; x[0] is the step's input. Unit 0 has a parameter.
struct UnitShape {
  enum class Form : std::uint8_t {
    plain,  // one op; backward reads x[k]
    stats,  // one op that also leaves s[k], which backward reads beside x[k]
    pair,   // h[k] = a(x[k], W[k]), x[k+1] = b(h[k]); backward reads h[k], then x[k]
  };
  Form form = Form::plain;
  bool split = false;   // the parameter's gradient and the input's are two ops
  bool frozen = false;  // the parameter is not trained
  std::int64_t activation = 0, saved = 0,
               parameter = 0;  // f32 elements: of x[k+1], of s[k] or h[k], of W[k]; 0: no W[k]
  double flops = 0;            // of a forward op; twice as many in backward
};
struct SmallGraphOptions {
  std::vector<UnitShape> units;
  std::int64_t input = 64;  // elements of x[0]
  double head_flops = 0;
};
// Ends with a head without parameters, whose loss a forward op makes, and AdamW with clipping.
Graph small_graph(const SmallGraphOptions& options);

struct Instance {
  std::string shape;  // in words
  Graph graph;
  Machine machine;
};
// The same seed makes the same instance everywhere.
Instance small_instance(std::uint64_t seed);
// Of three units, of which the last one's parameter is trained, and of the others none or one.
Instance frozen_instance(std::uint64_t seed);
// The same with this many units, each with a parameter.
Instance sized_instance(std::uint64_t seed, int units);

// A step of two micro-batches, which use the same parameters. The second one makes their gradients.
struct TwoParts {
  Graph graph;
  Graph forwards_first;  // the same ops as a program of one part: both forwards, then both backwards
};
TwoParts in_two_parts(const Graph& graph);

}  // namespace stowage::oracle
