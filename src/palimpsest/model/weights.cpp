#include "palimpsest/model/weights.h"

#include <ggml-alloc.h>

#include <cassert>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "palimpsest/core/error.h"
#include "palimpsest/model/backend.h"

namespace palimpsest {

namespace {

// One tensor that the graph uses.
struct Use {
  const GgufTensor* tensor;
  ggml_tensor** slot;
  bool vector;  // else a matrix
};

bool is_float(ggml_type type) {
  return type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16;
}

// Types that weights can have; the others are whole numbers and forms of activations.
bool is_weight_type(ggml_type type) {
  return is_float(type) || (ggml_is_quantized(type) && type != GGML_TYPE_Q8_1 && type != GGML_TYPE_Q8_K);
}

std::string shape_text(const std::int64_t* ne) {
  std::string out = "[" + std::to_string(ne[0]);
  int last = GGML_MAX_DIMS - 1;
  while (last > 0 && ne[last] == 1) --last;
  for (int d = 1; d <= last; ++d) out += ", " + std::to_string(ne[d]);
  return out + "]";
}

// Finds the tensors by name and holds them against the shapes that the hyper-parameters imply.
class Checklist {
 public:
  explicit Checklist(const GgufFile& file) : file_(file) {}

  const GgufTensor* check(const std::string& name, std::int64_t ne0, std::int64_t ne1, Presence presence) {
    const GgufTensor* t = presence == Presence::kNo ? nullptr : file_.find(name);
    if (t == nullptr) {
      if (presence == Presence::kYes)
        fail("{}: tensor {} {} is missing; is it a whole model? fetch or convert it again", file_.path(), name,
             wanted(ne0, ne1));
      return nullptr;
    }
    seen_.insert(name);
    if (t->ne[0] != ne0 || t->ne[1] != ne1 || t->ne[2] != 1 || t->ne[3] != 1)
      fail("{}: tensor {} has shape {}; the metadata want {}: damaged, or metadata of another model", file_.path(),
           name, shape_text(t->ne.data()), wanted(ne0, ne1));
    if (!is_weight_type(t->type))
      fail("{}: tensor {} is of type {}, which is no type of weights: damaged", file_.path(), name,
           ggml_type_name(t->type));
    return t;
  }
  void matrix(ggml_tensor*& slot, const std::string& name, std::int64_t in, std::int64_t out) {
    uses.push_back({check(name, in, out, Presence::kYes), &slot, false});
  }
  void vector(ggml_tensor*& slot, const std::string& name, std::int64_t size, Presence presence = Presence::kYes) {
    const GgufTensor* t = check(name, size, 1, presence);
    if (t == nullptr) return;
    if (!is_float(t->type))
      fail("{}: tensor {} is of type {}; expected f32, f16 or bf16: convert the model again", file_.path(), name,
           ggml_type_name(t->type));
    uses.push_back({t, &slot, true});
  }
  void ignore(const std::string& name) { seen_.insert(name); }

  // A tensor that nobody asked for means that the model computes something that this graph does not.
  void no_others(const Family& family) const {
    for (const GgufTensor& t : file_.tensors())
      if (!seen_.contains(t.name))
        fail("{}: tensor \"{}\" is not part of a {} model as supported here; use another model", file_.path(),
             printable(t.name), family.architecture);
  }

  std::vector<Use> uses;

 private:
  static std::string wanted(std::int64_t ne0, std::int64_t ne1) {
    const std::int64_t ne[GGML_MAX_DIMS] = {ne0, ne1, 1, 1};
    return shape_text(ne);
  }
  const GgufFile& file_;
  std::set<std::string, std::less<>> seen_;
};

std::vector<Use> check_tensors(Weights& w, const Family& family, const Hyperparameters& h) {
  Checklist list(w.file);
  w.embedding = list.check("token_embd.weight", h.width, h.vocabulary, Presence::kYes);
  list.vector(w.output_norm, "output_norm.weight", h.width);
  if (w.file.find("output.weight") != nullptr)
    list.matrix(w.output, "output.weight", h.width, h.vocabulary);
  else
    list.uses.push_back({w.embedding, &w.output, false});
  list.ignore("rope_freqs.weight");  // read with the hyper-parameters

  const std::int64_t q_rows = std::int64_t{h.query_heads} * h.head_dim, k_rows = std::int64_t{h.kv_heads} * h.head_dim;
  const std::int64_t v_rows = std::int64_t{h.kv_heads} * h.value_dim;
  const std::int64_t mixed = std::int64_t{h.query_heads} * h.value_dim;
  const Presence qk_norm = family.qk_norm ? Presence::kYes : Presence::kNo;
  w.layers.resize(h.layers);
  for (int i = 0; i < h.layers; ++i) {
    LayerWeights& l = w.layers[i];
    const std::string blk = "blk." + std::to_string(i) + ".";
    list.vector(l.attention_norm, blk + "attn_norm.weight", h.width);
    list.matrix(l.q, blk + "attn_q.weight", h.width, q_rows);
    list.matrix(l.k, blk + "attn_k.weight", h.width, k_rows);
    list.matrix(l.v, blk + "attn_v.weight", h.width, v_rows);
    list.matrix(l.attention_output, blk + "attn_output.weight", mixed, h.width);
    list.vector(l.q_bias, blk + "attn_q.bias", q_rows, family.qkv_bias);
    list.vector(l.k_bias, blk + "attn_k.bias", k_rows, family.qkv_bias);
    list.vector(l.v_bias, blk + "attn_v.bias", v_rows, family.qkv_bias);
    list.vector(l.attention_bias, blk + "attn_output.bias", h.width, family.attention_bias);
    list.vector(l.q_norm, blk + "attn_q_norm.weight", h.head_dim, qk_norm);
    list.vector(l.k_norm, blk + "attn_k_norm.weight", h.head_dim, qk_norm);
    list.vector(l.feed_forward_norm, blk + "ffn_norm.weight", h.width);
    list.matrix(l.gate, blk + "ffn_gate.weight", h.width, h.feed_forward);
    list.matrix(l.up, blk + "ffn_up.weight", h.width, h.feed_forward);
    list.matrix(l.down, blk + "ffn_down.weight", h.feed_forward, h.width);
    list.ignore(blk + "attn_rot_embd");  // old converters wrote the frequencies, which follow from the metadata
    list.ignore(blk + "attn_rot_embd.weight");
  }
  list.no_others(family);
  return std::move(list.uses);
}

// Whether the CPU's kernels may read the tensor where it lies. Bytes in memory, and files with an unusual
// general.alignment, can lie crooked.
bool lies_straight(const GgufFile& file, const GgufTensor& t) {
  constexpr std::uintptr_t kPlace = 64, kTensor = 32;  // ggml's demands on a buffer; llama.cpp's files give the second
  return reinterpret_cast<std::uintptr_t>(file.bytes().data()) % kPlace == 0 &&
         reinterpret_cast<std::uintptr_t>(t.data) % kTensor == 0;
}

// Whether the device multiplies by a matrix of this type and shape when it lies in that kind of buffer.
bool can_multiply(ggml_backend_dev_t device, ggml_backend_buffer_type_t type, const GgufTensor& t) {
  const ggml_context_ptr context(ggml_init({4 * ggml_tensor_overhead(), nullptr, true}));
  ggml_tensor* weight = ggml_new_tensor_2d(context.get(), t.type, t.ne[0], t.ne[1]);
  ggml_tensor* input = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, t.ne[0], 512);
  ggml_tensor* product = ggml_mul_mat(context.get(), weight, input);
  const ggml_backend_buffer_ptr buffer(ggml_backend_buft_alloc_buffer(type, 0));
  if (!buffer) return false;
  weight->buffer = buffer.get();
  const bool can = ggml_backend_dev_supports_op(device, product);
  weight->buffer = nullptr;
  return can;
}

// Collects tensors by the buffer type they go to, then allocates and fills them.
class Placement {
 public:
  Placement(Weights& weights, std::size_t most) : weights_(weights), most_(most) {}

  ggml_tensor* add(ggml_backend_buffer_type_t buffer, ggml_type type, const GgufTensor& t) {
    ggml_context*& context = contexts_[buffer];
    if (context == nullptr) {
      context = ggml_init({most_ * ggml_tensor_overhead(), nullptr, true});
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
  std::size_t most_;
  std::map<ggml_backend_buffer_type_t, ggml_context*> contexts_;
};

}  // namespace

void Weights::embedding_row(TokenId token, float* out) const {
  assert(token >= 0 && token < embedding->ne[1]);
  const std::size_t row_bytes = ggml_row_size(embedding->type, embedding->ne[0]);
  const std::byte* row = embedding->data + static_cast<std::size_t>(token) * row_bytes;
  if (embedding->type == GGML_TYPE_F32)
    std::memcpy(out, row, row_bytes);
  else
    ggml_get_type_traits(embedding->type)->to_float(row, out, embedding->ne[0]);
}

std::unique_ptr<Weights> load_weights(GgufFile file, const Family& family, const ModelOptions& options,
                                      Hyperparameters& hyper) {
  auto weights = std::make_unique<Weights>();
  Weights& w = *weights;
  w.file = std::move(file);
  w.device = find_device(options.device);
  const std::vector<Use> uses = check_tensors(w, family, hyper);

  hyper.parameters = hyper.weight_bytes = 0;
  for (const GgufTensor& t : w.file.tensors()) {
    hyper.parameters += static_cast<std::size_t>(t.ne[0] * t.ne[1]);
    hyper.weight_bytes += t.bytes;
  }

  const bool on_cpu = is_cpu(w.device);
  const ggml_backend_buffer_type_t plain = ggml_backend_dev_buffer_type(w.device);
  const auto extra = options.repack ? extra_buffer_types(w.device) : std::vector<ggml_backend_buffer_type_t>{};
  Placement placement(w, uses.size() + 1);
  std::vector<const Use*> in_file, copied;
  for (const Use& use : uses) {
    const GgufTensor& t = *use.tensor;
    if (use.vector) {
      *use.slot = placement.add(plain, GGML_TYPE_F32, t);
      copied.push_back(&use);
      continue;
    }
    ggml_backend_buffer_type_t home = nullptr;
    for (ggml_backend_buffer_type_t type : extra)
      if (home == nullptr && can_multiply(w.device, type, t)) home = type;
    if (home != nullptr) w.repacked_bytes += t.bytes;
    if (home == nullptr && !can_multiply(w.device, plain, t))
      fail("{}: tensor {}: device {} cannot multiply by weights of type {}; use another device or quantise differently",
           w.file.path(), t.name, options.device, ggml_type_name(t.type));
    if (home == nullptr && on_cpu && lies_straight(w.file, t)) {
      in_file.push_back(&use);
    } else {
      *use.slot = placement.add(home != nullptr ? home : plain, t.type, t);
      copied.push_back(&use);
    }
  }

  if (!in_file.empty()) {
    // The CPU reads the file's pages where they lie; nothing ever writes through this pointer.
    const auto bytes = w.file.bytes();
    ggml_backend_buffer_t buffer = ggml_backend_cpu_buffer_from_ptr(const_cast<std::byte*>(bytes.data()), bytes.size());
    if (buffer == nullptr) fail("{}: ggml cannot use the file in place", w.file.path());
    ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    w.buffers.emplace_back(buffer);
    ggml_context* context = ggml_init({in_file.size() * ggml_tensor_overhead(), nullptr, true});
    w.contexts.emplace_back(context);
    for (const Use* use : in_file) {
      const GgufTensor& t = *use->tensor;
      *use->slot = ggml_new_tensor(context, t.type, GGML_MAX_DIMS, t.ne.data());
      ggml_set_name(*use->slot, t.name.c_str());
      ggml_backend_tensor_alloc(buffer, *use->slot, const_cast<std::byte*>(t.data));
    }
  }

  placement.allocate();
  std::vector<float> row;
  for (const Use* use : copied) {
    const GgufTensor& t = *use->tensor;
    if (use->vector && t.type != GGML_TYPE_F32) {
      row.resize(static_cast<std::size_t>(t.ne[0]));
      ggml_get_type_traits(t.type)->to_float(t.data, row.data(), t.ne[0]);
      ggml_backend_tensor_set(*use->slot, row.data(), 0, row.size() * sizeof(float));
    } else {
      ggml_backend_tensor_set(*use->slot, t.data, 0, t.bytes);
      if (t.data != w.embedding->data) w.file.forget(t);
    }
  }
  return weights;
}

}  // namespace palimpsest
