#include "palimpsest/core/version.h"

namespace palimpsest {

const char* version() {
  return PALIMPSEST_VERSION;
}

const char* ggml_backend_dir() {
  return PALIMPSEST_GGML_BACKEND_DIR;
}

}  // namespace palimpsest
