// The terminal that a program writes to.
#pragma once

#include <cstdio>

namespace stowage {

// Columns of the terminal behind `file`, 0 when it is none.
int terminal_columns(std::FILE* file);

}  // namespace stowage
