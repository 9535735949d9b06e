// Standard input, output and error of a program.
#pragma once

namespace stowage {

// A stream that is closed becomes /dev/null: a file that is opened must not take its place, for lines for
// people would go into it.
void keep_standard_streams();

// Discards what is printed on standard output from here on.
void drop_standard_output();

// Throws Error where text that was printed is lost, which a script must hear.
void require_printed();

}  // namespace stowage
