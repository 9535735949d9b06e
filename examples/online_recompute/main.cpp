// A recursive network over a binary tree whose shape comes with the data, forward and backward, in a quarter
// of the memory that it needs.
//
//   h(leaf) = its vector     h(node) = tanh(a * h(left) + b * h(right))     loss = sum of h(root)
//
// element by element. Nobody knows the ops ahead: each is run as the tree is walked.
#include <stowage/online_recompute.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

using stowage::OnlineOperands;
using stowage::OnlineRecompute;
using stowage::OnlineTensor;

constexpr std::size_t width = 1024;
constexpr stowage::Bytes vector_bytes = width * sizeof(float);

struct Node {
  std::unique_ptr<Node> left, right;  // none, or both
  std::uint32_t seed = 0;             // of a leaf's vector
  OnlineTensor h{};
};

std::unique_ptr<Node> grow(std::size_t leaves, std::mt19937& random) {
  auto node = std::make_unique<Node>();
  node->seed = static_cast<std::uint32_t>(random());
  if (leaves == 1) return node;
  const std::size_t left = 1 + random() % (leaves - 1);
  node->left = grow(left, random);
  node->right = grow(leaves - left, random);
  return node;
}

float* written(const OnlineOperands& operands, std::size_t i) {
  return reinterpret_cast<float*>(operands.writes[i]);
}
const float* read(const OnlineOperands& operands, std::size_t i) {
  return reinterpret_cast<const float*>(operands.reads[i]);
}

class Network {
 public:
  explicit Network(OnlineRecompute& memory) : memory_(memory) {
    a_ = fill("a", 11);
    b_ = fill("b", 12);
    for (OnlineTensor weight : {a_, b_}) memory_.keep(weight);
  }

  // The loss, then the gradients of a and b.
  std::vector<float> train(Node& root) {
    forward(root);
    const OnlineTensor ones = run("d loss", 1, {}, [](const OnlineOperands& o) {
      for (std::size_t i = 0; i < width; ++i) written(o, 0)[i] = 1;
    })[0];
    backward(root, ones);
    std::vector<float> result(1);
    const auto h = memory_.pin(root.h);
    for (std::size_t i = 0; i < width; ++i) result[0] += reinterpret_cast<const float*>(h.data())[i];
    for (OnlineTensor gradient : {da_, db_}) {
      const auto pin = memory_.pin(gradient);
      const auto* values = reinterpret_cast<const float*>(pin.data());
      result.insert(result.end(), values, values + width);
    }
    return result;
  }

 private:
  using Work = std::function<void(const OnlineOperands&)>;

  std::vector<OnlineTensor> run(const char* name, std::size_t results, std::vector<OnlineTensor> reads,
                                Work work) {
    std::vector<OnlineTensor> writes;
    for (std::size_t i = 0; i < results; ++i) writes.push_back(memory_.declare(name, vector_bytes));
    memory_.run({name, std::move(work), std::move(reads), writes, 1.0});
    return writes;
  }

  OnlineTensor fill(const char* name, std::uint32_t seed) {
    return run(name, 1, {}, [seed](const OnlineOperands& o) {
      std::mt19937 random(seed);
      for (std::size_t i = 0; i < width; ++i)
        written(o, 0)[i] = static_cast<float>(random()) * 0x1p-32F - 0.5F;
    })[0];
  }

  void forward(Node& node) {
    if (!node.left) {
      node.h = fill("leaf", node.seed);
      return;
    }
    forward(*node.left);
    forward(*node.right);
    node.h = run("node", 1, {a_, b_, node.left->h, node.right->h}, [](const OnlineOperands& o) {
      for (std::size_t i = 0; i < width; ++i)
        written(o, 0)[i] = std::tanh(read(o, 0)[i] * read(o, 2)[i] + read(o, 1)[i] * read(o, 3)[i]);
    })[0];
  }

  // Takes over dh. A node's value is dead once its backward has run; the root's is still the loss.
  void backward(Node& node, OnlineTensor dh) {
    if (node.left) {
      const auto gradients =
          run("d node", 4, {a_, b_, node.left->h, node.right->h, node.h, dh}, [](const OnlineOperands& o) {
            for (std::size_t i = 0; i < width; ++i) {
              const float d = read(o, 5)[i] * (1 - read(o, 4)[i] * read(o, 4)[i]);
              written(o, 0)[i] = d * read(o, 0)[i];
              written(o, 1)[i] = d * read(o, 1)[i];
              written(o, 2)[i] = d * read(o, 2)[i];
              written(o, 3)[i] = d * read(o, 3)[i];
            }
          });
      memory_.release(dh);
      add_to(da_, gradients[2]);
      add_to(db_, gradients[3]);
      backward(*node.left, gradients[0]);
      backward(*node.right, gradients[1]);
      memory_.release(node.left->h);
      memory_.release(node.right->h);
    } else {
      memory_.release(dh);
    }
  }

  // Sums are kept: they need not be made again, and what they were made from can be forgotten.
  void add_to(OnlineTensor& sum, OnlineTensor term) {
    const bool first = sum == OnlineTensor{};
    const OnlineTensor next =
        run("sum", 1, first ? std::vector{term} : std::vector{sum, term}, [first](const OnlineOperands& o) {
          for (std::size_t i = 0; i < width; ++i)
            written(o, 0)[i] = first ? read(o, 0)[i] : read(o, 0)[i] + read(o, 1)[i];
        })[0];
    memory_.keep(next);
    if (!first) memory_.release(sum);
    memory_.release(term);
    sum = next;
  }

  OnlineRecompute& memory_;
  OnlineTensor a_{}, b_{}, da_{}, db_{};
};

struct Outcome {
  std::vector<float> result;
  stowage::OnlineStatistics statistics;
};

Outcome train(Node& tree, stowage::Bytes capacity) {
  void* const range = std::aligned_alloc(256, capacity);
  if (range == nullptr) throw std::bad_alloc();
  const std::unique_ptr<void, void (*)(void*)> owner(range, std::free);
  OnlineRecompute memory(static_cast<std::byte*>(range), capacity);
  Network network(memory);
  Outcome outcome;
  outcome.result = network.train(tree);
  outcome.statistics = memory.statistics();
  return outcome;
}

void print(const char* name, const Outcome& outcome) {
  const stowage::OnlineStatistics& s = outcome.statistics;
  std::printf("%-10s peak %9llu bytes, %4llu ops, %4llu evictions, %4llu ops rebuilt, loss %.6f\n", name,
              static_cast<unsigned long long>(s.highest_byte), static_cast<unsigned long long>(s.ops),
              static_cast<unsigned long long>(s.evictions), static_cast<unsigned long long>(s.rebuilds),
              static_cast<double>(outcome.result[0]));
}

}  // namespace

int main() {
  std::mt19937 random(7);
  const std::unique_ptr<Node> tree = grow(200, random);
  const Outcome whole = train(*tree, stowage::Bytes{64} << 20U);
  print("unlimited", whole);
  const stowage::Bytes quarter = whole.statistics.highest_byte / 4 / 256 * 256;
  const Outcome small = train(*tree, quarter);
  print("a quarter", small);
  const bool equal =
      std::memcmp(whole.result.data(), small.result.data(), whole.result.size() * sizeof(float)) == 0;
  std::printf("loss and gradients %s\n", equal ? "equal to the last bit" : "DIFFER");
  return equal ? 0 : 1;
}
