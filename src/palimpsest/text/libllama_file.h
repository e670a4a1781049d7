// Loading a file with libllama: its log, and metadata that the user replaces.
#pragma once

#include <llama.h>

#include <span>
#include <string>
#include <vector>

#include "palimpsest/core/gguf_override.h"

namespace palimpsest {

// Silences libllama's and ggml's logs during its lifetime, and keeps the first error, of all threads.
class LogCapture {
 public:
  LogCapture();
  ~LogCapture();
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;
  std::string first() const;

 private:
  ggml_log_callback ggml_callback_ = nullptr;
  void* ggml_data_ = nullptr;
};

llama_model_kv_override for_libllama(const GgufOverride& given);
// With the entry that ends libllama's lists.
std::vector<llama_model_kv_override> for_libllama(std::span<const GgufOverride> given);

}  // namespace palimpsest
