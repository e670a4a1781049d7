#pragma once

namespace palimpsest {

// The version of the library, "major.minor.patch".
const char* version();

// The folder of the backends that ggml loads at run time; empty if they are linked in.
const char* ggml_backend_dir();

}  // namespace palimpsest
