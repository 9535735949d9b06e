// Buffers to place: `stowage place FILE`.
#include "tools/cli/buffers_csv.h"

#include "tests/fuzz/target.h"

namespace stowage::fuzz {

std::vector<std::string> seeds() {
  return {"id,lower,upper,size\n1,0,3,4\n2,3,9,4\nb,5,9,4\n",
          "size,id,upper,lower,offset\r\n8,x y,4,0,0\r\n16,z,5,3,8\r\n"};
}

std::vector<std::string> dictionary() {
  return {"id", "lower", "upper", "size", "offset", ",",
          "\n", "\r\n",  "\n\n",  ",,",   "\"",     "4611686018427387904",
          "-1", " 1"};
}

}  // namespace stowage::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stowage;
  const auto buffers =
      fuzz::parsed_or_refused([&] { return parse_buffers(fuzz::text_of(data, size), "input"); });
  if (!buffers) return 0;
  const std::vector<Bytes> offsets(buffers->items.size(), 0);
  fuzz::check_round_trip(
      *buffers, [&](const Buffers& of) { return to_csv(of, offsets); },
      [](std::string_view text) { return parse_buffers(text, "written"); });
  Bytes total = 0;
  for (const PlacementItem& item : buffers->items) {
    if (item.first >= item.last || item.bytes == 0) fuzz::broken("a buffer without a lifetime or bytes");
    if (__builtin_add_overflow(total, item.bytes, &total)) fuzz::broken("sizes that overflow together");
  }
  return 0;
}
