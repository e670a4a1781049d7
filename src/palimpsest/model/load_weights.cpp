#include "palimpsest/model/load_weights.h"

#include <fmt/format.h>
#include <ggml-alloc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/core/cpu_count.h"
#include "palimpsest/core/error.h"
#include "palimpsest/core/thread_pool.h"
#include "palimpsest/model/backend.h"
#include "palimpsest/model/check_tensors.h"
#include "palimpsest/model/placement.h"
#include "palimpsest/model/rpc.h"

namespace palimpsest {

namespace {

// Whether the CPU's kernels may read the tensor in place. Bytes in memory, and files with an unusual general.alignment,
// can be misaligned.
bool is_aligned(const GgufFile& file, const GgufTensor& t) {
  if (t.part < 0) return false;
  constexpr std::uintptr_t
      kBufferAlign = 64,
      kTensorAlign = 32;  // required by ggml of a buffer and of a tensor; llama.cpp's files align to the second
  return reinterpret_cast<std::uintptr_t>(file.bytes(t.part).data()) % kBufferAlign == 0 &&
         reinterpret_cast<std::uintptr_t>(t.data) % kTensorAlign == 0;
}

// Whether the device supports the products of this tensor in a buffer of type `type`.
bool can_multiply(ggml_backend_dev_t device, ggml_backend_buffer_type_t type, const TensorUse& use) {
  const GgufTensor& t = *use.tensor;
  const ggml_context_ptr context(ggml_init({5 * ggml_tensor_overhead(), nullptr, true}));
  ggml_tensor* weight = ggml_new_tensor_3d(context.get(), t.type, t.ne[0], t.ne[1], t.ne[2]);
  ggml_tensor* product = nullptr;
  if (use.heads()) {
    product =
        ggml_mul_mat(context.get(), weight, ggml_new_tensor_3d(context.get(), GGML_TYPE_F32, t.ne[0], 512, t.ne[2]));
  } else if (!use.experts()) {
    product = ggml_mul_mat(context.get(), weight, ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, t.ne[0], 512));
  } else {
    ggml_tensor* input = ggml_new_tensor_3d(context.get(), GGML_TYPE_F32, t.ne[0], 1, 512);
    product = ggml_mul_mat_id(context.get(), weight, input, ggml_new_tensor_2d(context.get(), GGML_TYPE_I32, 1, 512));
  }
  const ggml_backend_buffer_ptr buffer(ggml_backend_buft_alloc_buffer(type, 0));
  if (!buffer) return false;
  weight->buffer = buffer.get();
  const bool can = ggml_backend_dev_supports_op(device, product);
  weight->buffer = nullptr;
  return can;
}

// Whether our products support the matrix, or, with experts, all of them as one matrix: each begins with a panel.
bool in_panels(const GgufTensor& t) {
  return Panels::supports(t.type, t.ne[1] * t.ne[2], t.ne[0]) && (t.ne[2] == 1 || t.ne[1] % Panels::kRows == 0);
}

// The layer of a tensor of a layer, "blk.N."
std::string_view layer_of(const GgufTensor& t) {
  const std::string_view name = t.name;
  return name.substr(0, name.find('.', name.find('.') + 1) + 1);
}

// Layers whose experts cannot all be in panels; the graph wants all of them or none.
std::set<std::string_view> layers_beside_panels(const std::vector<TensorUse>& uses) {
  std::set<std::string_view> out;
  for (const TensorUse& use : uses)
    if (use.experts() && !in_panels(*use.tensor)) out.insert(layer_of(*use.tensor));
  return out;
}

// The part of the model, as in Weights::device_of, that a tensor is used in.
std::size_t part_of(const TensorUse& use, const Weights& w, int layers) {
  const std::string_view name = use.tensor->name;
  constexpr std::string_view kLayer = "blk.";
  if (name.starts_with(kLayer)) {
    std::size_t layer = 0;
    std::from_chars(name.data() + kLayer.size(), name.data() + name.size(), layer);
    return layer;
  }
  return use.target == &w.output || name.starts_with("output") ? static_cast<std::size_t>(layers) : 0;
}

// Fills Weights::device_of.
void place(Weights& w, const std::vector<TensorUse>& uses, const ModelOptions& options, int layers) {
  const std::size_t parts = static_cast<std::size_t>(layers) + 1;
  std::string names;
  for (ggml_backend_dev_t device : w.devices) names += (names.empty() ? "" : ",") + name_of(device);
  std::vector<double> shares = options.tensor_split;
  if (!shares.empty() && shares.size() != w.devices.size())
    fail("--tensor-split has {} numbers for {} devices ({}): give one for each", shares.size(), w.devices.size(),
         names);
  if (!shares.empty() && (std::ranges::any_of(shares, [](double s) { return !(s >= 0 && std::isfinite(s)); }) ||
                          std::ranges::all_of(shares, [](double s) { return s == 0; })))
    fail("--tensor-split: give a number for each device, none negative and not all 0, as in 3,1");
  std::vector<std::size_t> free, bytes(parts), needed(w.devices.size());
  for (ggml_backend_dev_t device : w.devices) {
    std::size_t total = 0;
    ggml_backend_dev_memory(device, &free.emplace_back(), &total);
  }
  if (shares.empty()) {
    const bool known = std::ranges::none_of(free, [](std::size_t f) { return f == 0; });
    for (const std::size_t f : free) shares.push_back(known ? static_cast<double>(f) : 1);
  }
  for (const TensorUse& use : uses) bytes[part_of(use, w, layers)] += use.tensor->bytes;
  w.device_of = place_layers(bytes, shares);
  for (std::size_t part = 0; part < parts; ++part) needed[static_cast<std::size_t>(w.device_of[part])] += bytes[part];
  for (std::size_t i = 0; i < w.devices.size(); ++i)
    if (!is_cpu(w.devices[i]) && free[i] > 0 && needed[i] > free[i])
      fail(
          "{}: {} MiB of weights do not fit into the {} MiB of free memory of device {}; use a smaller model, more "
          "devices (--device {},...), or another --tensor-split",
          w.file.path(), needed[i] >> 20, free[i] >> 20, name_of(w.devices[i]), names);
}

// Groups tensors by buffer type, then allocates and fills the buffers.
class Placement {
 public:
  Placement(Weights& weights, std::size_t max) : weights_(weights), max_(max) {}

  ggml_tensor* add(ggml_backend_buffer_type_t buffer, ggml_type type, const GgufTensor& t) {
    ggml_context*& context = contexts_[buffer];
    if (context == nullptr) {
      context = ggml_init({max_ * ggml_tensor_overhead(), nullptr, true});
      if (context == nullptr) fail("{}: no memory for its tables", weights_.file.path());
      weights_.contexts.emplace_back(context);
    }
    ggml_tensor* out = ggml_new_tensor(context, type, GGML_MAX_DIMS, t.ne.data());
    ggml_set_name(out, t.name.c_str());
    return out;
  }
  void allocate() {
    for (auto& [type, context] : contexts_) {
      ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(context, type);
      if (buffer == nullptr)
        fail("{}: {} MiB of weights do not fit into the memory of {}; use a smaller model or another device",
             weights_.file.path(), ggml_backend_alloc_ctx_tensors_from_buft_size(context, type) >> 20,
             ggml_backend_buft_name(type));
      ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
      weights_.buffers.emplace_back(buffer);
    }
  }

 private:
  Weights& weights_;
  std::size_t max_;
  std::map<ggml_backend_buffer_type_t, ggml_context*> contexts_;
};

// The CPU reads a mapped file in place; nothing writes through these pointers.
void use_in_file(Weights& w, const std::vector<const TensorUse*>& uses, int part) {
  const auto count = std::ranges::count_if(uses, [&](const TensorUse* use) { return use->tensor->part == part; });
  if (count == 0) return;
  const auto bytes = w.file.bytes(part);
  ggml_backend_buffer_t buffer = ggml_backend_cpu_buffer_from_ptr(const_cast<std::byte*>(bytes.data()), bytes.size());
  if (buffer == nullptr) fail("{}: ggml cannot use the file in place", w.file.path());
  ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  w.buffers.emplace_back(buffer);
  ggml_context* context = ggml_init({static_cast<std::size_t>(count) * ggml_tensor_overhead(), nullptr, true});
  if (context == nullptr) fail("{}: no memory for its tables", w.file.path());
  w.contexts.emplace_back(context);
  for (const TensorUse* use : uses) {
    const GgufTensor& t = *use->tensor;
    if (t.part != part) continue;
    *use->target = ggml_new_tensor(context, t.type, GGML_MAX_DIMS, t.ne.data());
    ggml_set_name(*use->target, t.name.c_str());
    ggml_backend_tensor_alloc(buffer, *use->target, const_cast<std::byte*>(t.data));
  }
}

// Memory for the panels of these tensors, one after another, in huge pages: a step reads them all, and with pages of
// 4 KiB waits for addresses, too.
std::byte* memory_of_panels(Weights& w, const std::vector<const TensorUse*>& uses) {
  std::size_t bytes = 0;
  for (const TensorUse* use : uses) {
    const GgufTensor& t = *use->tensor;
    bytes += Panels::bytes_of(t.type, t.ne[1] * t.ne[2], t.ne[0]);
  }
  if (!w.panel_memory.reserve(bytes, bytes) || !w.panel_memory.commit(0, bytes))
    fail("no memory for {} MiB of repacked weights: use a smaller model", bytes >> 20);
  return w.panel_memory.base();
}

// Counts the bytes of matrices that are copied or repacked, for ModelOptions::progress.
class Loaded {
 public:
  Loaded(const ModelOptions& options, std::size_t total) : options_(options), total_(total) {}
  void add(const GgufTensor& t) {
    done_ += t.bytes;
    if (options_.progress) options_.progress(done_, total_);
  }

 private:
  const ModelOptions& options_;
  std::size_t done_ = 0, total_;
};

}  // namespace

std::unique_ptr<Weights> load_weights(GgufFile file, const Family& family, const ModelOptions& options,
                                      Hyperparameters& hyper) {
  auto weights = std::make_unique<Weights>();
  Weights& w = *weights;
  w.file = std::move(file);
  const std::string servers = options.rpc.empty() ? "" : add_rpc_servers(options.rpc);
  w.devices = find_devices(options.device.empty() ? servers : options.device);
  w.device = w.devices.front();
  w.stock_operators = options.portable || w.devices.size() > 1 || !is_cpu(w.device);
  const std::vector<TensorUse> uses = check_tensors(w, family, hyper);
  if (family.sink_logits != Presence::kNo) hyper.sink_logits = read_sink_logits(w.file, hyper);
  if (family.qk_norm == QkNorm::kAfterRotation) hyper.query_factors = read_query_factors(w.file, hyper);

  hyper.parameters = hyper.weight_bytes = 0;
  for (const GgufTensor& t : w.file.tensors()) {
    hyper.parameters += static_cast<std::size_t>(t.ne[0] * t.ne[1] * t.ne[2]);
    hyper.weight_bytes += t.bytes;
  }

  place(w, uses, options, hyper.layers);
  std::map<ggml_backend_dev_t, std::vector<ggml_backend_buffer_type_t>> extra;
  for (ggml_backend_dev_t device : w.devices)
    if (options.repack) extra[device] = extra_buffer_types(device);
  Placement placement(w, uses.size() + 1);
  const auto beside_panels = layers_beside_panels(uses);
  std::vector<const TensorUse*> in_file, copied, for_panels;
  for (const TensorUse& use : uses) {
    const GgufTensor& t = *use.tensor;
    ggml_backend_dev_t const device = w.devices[static_cast<std::size_t>(w.device_of[part_of(use, w, hyper.layers)])];
    ggml_backend_buffer_type_t const plain = ggml_backend_dev_buffer_type(device);
    if (use.vector()) {
      *use.target = placement.add(plain, GGML_TYPE_F32, t);
      copied.push_back(&use);
      continue;
    }
    if (!w.stock_operators && options.repack && !use.heads() && in_panels(t) &&
        !(use.experts() && beside_panels.contains(layer_of(t)))) {
      for_panels.push_back(&use);
      continue;
    }
    ggml_backend_buffer_type_t home = nullptr;
    for (ggml_backend_buffer_type_t type : extra[device])
      if (home == nullptr && !use.heads() && can_multiply(device, type, use)) home = type;
    if (home != nullptr) w.repacked_bytes += t.bytes;
    if (home == nullptr && !can_multiply(device, plain, use))
      fail("{}: tensor {}: device {} cannot multiply by weights of type {}; use another device or quantise differently",
           w.file.path(), t.name, name_of(device), ggml_type_name(t.type));
    if (home == nullptr && is_cpu(device) && is_aligned(w.file, t)) {
      in_file.push_back(&use);
    } else {
      *use.target = placement.add(home != nullptr ? home : plain, t.type, t);
      copied.push_back(&use);
    }
  }

  for (int part = 0; part < w.file.parts(); ++part) use_in_file(w, in_file, part);

  std::size_t total = 0;
  for (const auto* uses : {&for_panels, &copied})
    for (const TensorUse* use : *uses) total += use->tensor->bytes;
  Loaded loaded(options, total);
  if (!for_panels.empty()) {
    ggml_context* context = ggml_init({for_panels.size() * ggml_tensor_overhead(), nullptr, true});
    if (context == nullptr) fail("{}: no memory for its tables", w.file.path());
    w.contexts.emplace_back(context);
    std::byte* memory = memory_of_panels(w, for_panels);
    ThreadPool pool(usable_cpus());
    for (const TensorUse* use : for_panels) {
      const GgufTensor& t = *use->tensor;
      *use->target = ggml_new_tensor(context, t.type, GGML_MAX_DIMS, t.ne.data());
      ggml_set_name(*use->target, t.name.c_str());
      const auto [at, added] =
          w.panels.try_emplace(*use->target, t.type, t.ne[1] * t.ne[2], t.ne[0], t.data, &pool, memory);
      memory += Panels::bytes_of(t.type, t.ne[1] * t.ne[2], t.ne[0]);
      w.panel_bytes += at->second.bytes();
      if (t.data != w.embedding->data) w.file.discard_pages(t);
      loaded.add(t);
    }
  }

  placement.allocate();
  std::vector<float> row;
  for (const TensorUse* use : copied) {
    const GgufTensor& t = *use->tensor;
    if (use->vector() && t.type != GGML_TYPE_F32) {
      row.resize(static_cast<std::size_t>(t.ne[0] * t.ne[1]));
      ggml_get_type_traits(t.type)->to_float(t.data, row.data(), t.ne[0] * t.ne[1]);
      ggml_backend_tensor_set(*use->target, row.data(), 0, row.size() * sizeof(float));
    } else {
      ggml_backend_tensor_set(*use->target, t.data, 0, t.bytes);
      if (t.data != w.embedding->data) w.file.discard_pages(t);
    }
    loaded.add(t);
  }
  return weights;
}

}  // namespace palimpsest
