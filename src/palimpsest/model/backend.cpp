#include "palimpsest/model/backend.h"

#include <dlfcn.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <filesystem>
#include <mutex>
#include <string_view>
#include <utility>

#include "palimpsest/core/cpu_level.h"
#include "palimpsest/core/error.h"
#include "palimpsest/core/letter_case.h"
#include "palimpsest/core/version.h"

namespace palimpsest {

namespace {

// Passes only ggml's errors on to the user.
void log_line(ggml_log_level level, const char* text, void*) {
  std::string_view line(text);
  while (!line.empty() && (line.back() == '\n' || line.back() == ' ')) line.remove_suffix(1);
  if (line.empty()) return;
  // ggml logs these lines when the connection to an RPC server breaks; rpc.cpp reports which server.
  const bool from_socket = line.starts_with("recv failed") || line.starts_with("send failed");
  if (level == GGML_LOG_LEVEL_ERROR && !from_socket)
    spdlog::error("ggml: {}", line);
  else
    spdlog::debug("ggml: {}", line);
}

// ggml's variant of its CPU backend for a level of core/cpu_level.h.
constexpr std::pair<std::string_view, const char*> kCpuVariants[] = {
    {"SSE2", "x64"},           {"SSSE3", "x64"},           {"SSE4", "sse42"},
    {"AVX2", "haswell"},       {"AVX2_VNNI", "alderlake"}, {"AVX3", "skylakex"},
    {"AVX3_DL", "icelake"},    {"AVX3_ZEN4", "zen4"},      {"AVX3_SPR", "sapphirerapids"},
    {"AMX", "sapphirerapids"}, {"NEON", "armv8.0_1"},      {"NEON_WITHOUT_AES", "armv8.0_1"},
    {"NEON_DOT", "armv8.2_1"}};

// The library that a backend was loaded from; empty: it is linked.
std::filesystem::path library_of(ggml_backend_reg_t backend) {
  Dl_info loaded{};
  const void* const inside = ggml_backend_reg_get_proc_address(backend, "ggml_backend_set_n_threads");
  return inside == nullptr || ::dladdr(inside, &loaded) == 0 ? std::filesystem::path() : loaded.dli_fname;
}

// Replaces the CPU backend that ggml chose by its variant for `level`, a plug-in in the same folder.
void limit_cpu_backend(std::string_view level) {
  if (level == "NEON_I8MM") return;  // ggml has variants with smmla, and chooses the one for this CPU
  const auto* const variant = std::ranges::find(kCpuVariants, level, &std::pair<std::string_view, const char*>::first);
  ggml_backend_dev_t const cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  if (variant == std::end(kCpuVariants) || cpu == nullptr)
    fail("PALIMPSEST_SIMD={}: ggml has no variant of its CPU backend for it", level);
  ggml_backend_reg_t const chosen = ggml_backend_dev_backend_reg(cpu);
  const auto file = library_of(chosen).parent_path() / fmt::format("libggml-cpu-{}.so", variant->second);
  if (!std::filesystem::exists(file))
    fail("PALIMPSEST_SIMD={} needs {}: build ggml with GGML_CPU_ALL_VARIANTS", level, file.string());
  ggml_backend_unload(chosen);
  if (ggml_backend_load(file.c_str()) == nullptr) fail("{} does not load", file.string());
}

// ggml_backend_dir(); "$ORIGIN", as in a run path, is the folder of ggml's library: for packages that may lie anywhere.
std::string backend_folder() {
  constexpr std::string_view kOrigin = "$ORIGIN";
  const std::string_view given = ggml_backend_dir();
  if (!given.starts_with(kOrigin)) return std::string(given);
  Dl_info library{};
  if (::dladdr(reinterpret_cast<const void*>(&ggml_backend_load_all_from_path), &library) == 0)
    fail("the folder of ggml's library is unknown: build with -DPALIMPSEST_GGML_BACKEND_DIR=FOLDER");
  return std::filesystem::path(library.dli_fname).parent_path().string() + std::string(given.substr(kOrigin.size()));
}

void load_backends() {
  static std::once_flag once;
  std::call_once(once, [] {
    ggml_log_set(log_line, nullptr);
    if (const std::string folder = backend_folder(); !folder.empty())
      ggml_backend_load_all_from_path(folder.c_str());
    else
      ggml_backend_load_all();
    if (!cpu_level_limit().empty()) limit_cpu_backend(cpu_level_limit());
  });
}

}  // namespace

std::string name_of(ggml_backend_dev_t device) {
  return is_cpu(device) ? "cpu" : ggml_backend_dev_name(device);
}

std::vector<DeviceInfo> list_devices() {
  load_backends();
  std::vector<DeviceInfo> out;
  for (std::size_t i = 0; i < ggml_backend_dev_count(); ++i) {
    ggml_backend_dev_t device = ggml_backend_dev_get(i);
    DeviceInfo info;
    info.cpu = is_cpu(device);
    info.name = name_of(device);
    info.description = ggml_backend_dev_description(device);
    if (info.cpu)
      info.kernels =
          fmt::format("{}, {}", cpu_level(), library_of(ggml_backend_dev_backend_reg(device)).filename().string());
    ggml_backend_dev_memory(device, &info.memory_free, &info.memory_total);
    out.push_back(std::move(info));
  }
  return out;
}

ggml_backend_dev_t find_device(const std::string& name) {
  load_backends();
  std::string known;
  for (std::size_t i = 0; i < ggml_backend_dev_count(); ++i) {
    ggml_backend_dev_t device = ggml_backend_dev_get(i);
    const std::string device_name = name_of(device);
    if (lower_case(device_name) == lower_case(name)) return device;
    known += (known.empty() ? "" : ", ") + device_name;
  }
  if (known.empty()) fail("ggml has no device at all, not even the CPU; is its CPU backend installed?");
  fail("no device is called \"{}\"; there are: {}", name, known);
}

std::vector<ggml_backend_dev_t> find_devices(const std::string& names) {
  std::vector<ggml_backend_dev_t> out;
  for (std::size_t first = 0; first <= names.size();) {
    const std::size_t end = std::min(names.find(',', first), names.size());
    const std::string name = names.substr(first, end - first);
    out.push_back(find_device(names.empty() ? "cpu" : name));
    if (std::ranges::count(out, out.back()) > 1) fail("--device {}: {} is named twice", names, name);
    first = end + 1;
  }
  return out;
}

bool is_cpu(ggml_backend_dev_t device) {
  return ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU;
}

bool is_rpc(ggml_backend_dev_t device) {
  return std::string_view(ggml_backend_reg_name(ggml_backend_dev_backend_reg(device))) == "RPC";
}

namespace {

std::atomic<std::uint64_t> g_freed{0};

}  // namespace

std::uint64_t freed_buffers() {
  return g_freed;
}

void count_freed_buffer() {
  ++g_freed;
}

std::span<float> HostFloats::get(std::size_t count) {
  const std::size_t bytes = count * sizeof(float);
  if (pinned_ && ggml_backend_buffer_get_size(pinned_.get()) >= bytes)
    return {static_cast<float*>(ggml_backend_buffer_get_base(pinned_.get())), count};
  pinned_.reset();
  if (ggml_backend_buffer_type_t const type = ggml_backend_dev_host_buffer_type(device_); type != nullptr && count > 0)
    pinned_.reset(ggml_backend_buft_alloc_buffer(type, bytes));
  if (pinned_) return {static_cast<float*>(ggml_backend_buffer_get_base(pinned_.get())), count};
  any_.resize(count);
  return any_;
}

ggml_backend_ptr make_backend(ggml_backend_dev_t device, int threads) {
  ggml_backend_ptr backend(ggml_backend_dev_init(device, nullptr));
  if (!backend) fail("device {} cannot be started", ggml_backend_dev_name(device));
  set_threads(backend.get(), threads);
  return backend;
}

void set_threads(ggml_backend_t backend, int threads) {
  const auto set = reinterpret_cast<ggml_backend_set_n_threads_t>(ggml_backend_reg_get_proc_address(
      ggml_backend_dev_backend_reg(ggml_backend_get_device(backend)), "ggml_backend_set_n_threads"));
  if (set != nullptr) set(backend, threads);
}

std::vector<ggml_backend_buffer_type_t> extra_buffer_types(ggml_backend_dev_t device) {
  const auto get = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
      ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts"));
  std::vector<ggml_backend_buffer_type_t> out;
  if (get == nullptr) return out;
  for (ggml_backend_buffer_type_t* type = get(device); type != nullptr && *type != nullptr; ++type)
    out.push_back(*type);
  return out;
}

}  // namespace palimpsest
