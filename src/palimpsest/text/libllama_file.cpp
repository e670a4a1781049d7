#include "palimpsest/text/libllama_file.h"

#include <cstring>
#include <mutex>
#include <string_view>

namespace palimpsest {
namespace {

std::mutex log_mutex;
std::string first_error;  // libllama's first error line while loading a file, for our error message

void keep_error(ggml_log_level level, const char* text, void*) {
  if (level != GGML_LOG_LEVEL_ERROR) return;
  const std::lock_guard lock(log_mutex);
  if (!first_error.empty()) return;
  for (const char c : std::string_view(text).substr(0, 300))  // names from the file may contain any byte
    if (c != '\n') first_error += c >= 32 && c < 127 ? c : '?';
}

}  // namespace

LogCapture::LogCapture() {
  ggml_log_get(&ggml_callback_, &ggml_data_);
  llama_log_set(keep_error, nullptr);  // redirects ggml's log, too
  const std::lock_guard lock(log_mutex);
  first_error.clear();
}

LogCapture::~LogCapture() {
  ggml_log_set(ggml_callback_, ggml_data_);
}

std::string LogCapture::first() const {
  const std::lock_guard lock(log_mutex);
  return first_error.empty() ? "no reason given" : first_error;
}

llama_model_kv_override for_libllama(const GgufOverride& given) {
  llama_model_kv_override out = {};
  std::strncpy(out.key, given.key.c_str(), sizeof out.key - 1);
  if (const auto* whole = std::get_if<std::int64_t>(&given.value))
    out.tag = LLAMA_KV_OVERRIDE_TYPE_INT, out.val_i64 = *whole;
  if (const auto* number = std::get_if<double>(&given.value))
    out.tag = LLAMA_KV_OVERRIDE_TYPE_FLOAT, out.val_f64 = *number;
  if (const auto* flag = std::get_if<bool>(&given.value)) out.tag = LLAMA_KV_OVERRIDE_TYPE_BOOL, out.val_bool = *flag;
  if (const auto* text = std::get_if<std::string>(&given.value)) {
    out.tag = LLAMA_KV_OVERRIDE_TYPE_STR;
    std::strncpy(out.val_str, text->c_str(), sizeof out.val_str - 1);
  }
  return out;
}

std::vector<llama_model_kv_override> for_libllama(std::span<const GgufOverride> given) {
  std::vector<llama_model_kv_override> list;
  for (const GgufOverride& each : given) list.push_back(for_libllama(each));
  list.push_back({});
  return list;
}

}  // namespace palimpsest
