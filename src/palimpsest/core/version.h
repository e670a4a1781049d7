#pragma once

namespace palimpsest {

// The version of the library, "major.minor.patch".
const char* version();

// Where ggml's backends lie that it loads at run time; empty when ggml was linked with them.
const char* ggml_backend_dir();

}  // namespace palimpsest
