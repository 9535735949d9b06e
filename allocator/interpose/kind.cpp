#include "allocator/interpose/kind.h"

namespace stowage::interpose {

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::device:
      return "device";
    case Kind::pitched:
      return "pitched";
    case Kind::managed:
      return "managed";
    case Kind::async:
      return "async";
    case Kind::pool:
      return "pool";
    case Kind::host_pool:
      return "host_pool";
    case Kind::physical:
      return "physical";
    case Kind::host_physical:
      return "host_physical";
    case Kind::graph:
      return "graph";
    case Kind::unknown:
      break;
  }
  return "unknown";
}

bool on_the_card(Kind kind) {
  switch (kind) {
    case Kind::device:
    case Kind::pitched:
    case Kind::async:
    case Kind::pool:
    case Kind::physical:
      return true;
    case Kind::managed:
    case Kind::host_pool:
    case Kind::host_physical:
    case Kind::graph:
    case Kind::unknown:
      break;
  }
  return false;
}

}  // namespace stowage::interpose
