// A text of which either program learns.
#pragma once

#include <string>

namespace stowage::samples {

inline std::string documents() {
  std::string text;
  for (int document = 0; document < 40; ++document) {
    for (int i = 0; i < 6; ++i)
      text += "sentence " + std::to_string(i) + " of the document " + std::to_string(document) + ".\n";
    text += '\n';
  }
  return text;
}

}  // namespace stowage::samples
