// Standard input, output and error of a program.
#pragma once

namespace stowage {

// Opens /dev/null for each closed stream: otherwise the next file that is opened would take its number, and
// lines for people would go into that file.
void keep_standard_streams();

// Discards what is printed on standard output from here on.
void drop_standard_output();

// Throws Error if printed text was lost, so that a script hears of it.
void require_printed();

}  // namespace stowage
