#include "palimpsest/encoder/encoder.h"

#include <llama.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>

#include "palimpsest/core/error.h"
#include "palimpsest/model/backend.h"
#include "palimpsest/text/libllama_file.h"

namespace palimpsest {
namespace {

// Texts at the beginning that are read in one batch, at least one.
std::size_t texts_of_batch(std::span<const SharedTokens> texts) {
  std::size_t count = 0, tokens = 0;
  for (const SharedTokens& text : texts) {
    tokens += text.size();
    if (count > 0 && (tokens > Encoder::kBatchTokens || count == Encoder::kBatchTexts)) break;
    ++count;
  }
  return count;
}

void normalize(std::vector<float>& vector) {
  double sum = 0;
  for (const float x : vector) sum += static_cast<double>(x) * x;
  const auto scale = static_cast<float>(sum > 0 ? 1 / std::sqrt(sum) : 0);
  for (float& x : vector) x *= scale;
}

enum llama_pooling_type for_libllama(EncoderPooling pooling) {
  switch (pooling) {
    case EncoderPooling::kMean:
      return LLAMA_POOLING_TYPE_MEAN;
    case EncoderPooling::kCls:
      return LLAMA_POOLING_TYPE_CLS;
    case EncoderPooling::kLast:
      return LLAMA_POOLING_TYPE_LAST;
    case EncoderPooling::kRank:
      break;
  }
  return LLAMA_POOLING_TYPE_RANK;
}

// Tokens, positions and texts of a batch in libllama's form.
class EncoderBatch {
 public:
  explicit EncoderBatch(std::size_t tokens) : batch_(llama_batch_init(static_cast<std::int32_t>(tokens), 0, 1)) {}
  ~EncoderBatch() { llama_batch_free(batch_); }
  EncoderBatch(const EncoderBatch&) = delete;
  EncoderBatch& operator=(const EncoderBatch&) = delete;

  void add(const SharedTokens& text, llama_seq_id id) {
    llama_pos position = 0;
    for (const TokenId token : text) {
      const auto i = batch_.n_tokens++;
      batch_.token[i] = token;
      batch_.pos[i] = position++;
      batch_.n_seq_id[i] = 1;
      batch_.seq_id[i][0] = id;
      batch_.logits[i] = 1;
    }
  }
  const llama_batch& get() const { return batch_; }

 private:
  llama_batch batch_;
};

}  // namespace

// Callers run in the order in which they came, one batch each.
class Encoder::Turn {
 public:
  Turn(Encoder& encoder, const std::function<void()>& check) : encoder_(encoder) {
    using namespace std::chrono_literals;
    std::unique_lock lock(encoder_.mutex_);
    encoder_.turns_.push_back(this);
    try {
      do {
        lock.unlock();
        check();
        lock.lock();
      } while (!encoder_.changed_.wait_for(lock, 100ms, [&] { return encoder_.turns_.front() == this; }));
    } catch (...) {
      leave();
      throw;
    }
  }
  ~Turn() { leave(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  void leave() {
    const std::lock_guard lock(encoder_.mutex_);
    std::erase(encoder_.turns_, this);
    encoder_.changed_.notify_all();
  }
  Encoder& encoder_;
};

std::shared_ptr<Encoder> Encoder::load(const std::string& path, const EncoderOptions& options) {
  GgufFile file = GgufFile::open(path);
  for (const GgufOverride& given : options.overrides) file.override_value(given);
  std::shared_ptr<Encoder> out(new Encoder);
  out->file_ = read_encoder(file);
  out->pooling_ = options.pooling.value_or(out->file_.pooling);
  if (out->pooling_ == EncoderPooling::kRank && !out->file_.has_head)
    fail("{}: has no classification head (cls.output.weight), so it ranks nothing: give --pooling mean, cls or last",
         path);
  out->context_ = options.context > 0 ? std::min(options.context, out->file_.context) : out->file_.context;

  std::vector<ggml_backend_dev_t> devices;
  for (ggml_backend_dev_t device : find_devices(options.device))
    if (!is_cpu(device)) devices.push_back(device);
  llama_model_params model = llama_model_default_params();
  model.n_gpu_layers = devices.empty() ? 0 : out->file_.layers + 1;
  devices.push_back(nullptr);
  model.devices = devices.data();
  model.use_extra_bufts = options.repack;
  const std::vector<llama_model_kv_override> overrides = for_libllama(options.overrides);
  if (!options.overrides.empty()) model.kv_overrides = overrides.data();

  const LogCapture log;
  out->model_ = {llama_model_load_from_file(path.c_str(), model), llama_model_free};
  if (out->model_ == nullptr) fail("{}: libllama cannot load this encoder: {}", path, log.first());
  llama_context_params params = llama_context_default_params();
  params.n_ctx = params.n_batch = params.n_ubatch = static_cast<std::uint32_t>(std::max(out->context_, kBatchTokens));
  params.n_seq_max = kBatchTexts;
  params.n_threads = params.n_threads_batch = options.threads;
  params.pooling_type = for_libllama(out->pooling_);
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;  // would round keys and values to f16
  params.embeddings = params.no_perf = params.kv_unified = true;
  out->context_of_model_ = {llama_init_from_model(out->model_.get(), params), llama_free};
  if (out->context_of_model_ == nullptr)
    fail("{}: libllama cannot run this encoder with texts of {} tokens: {}; a smaller --context needs less memory",
         path, out->context_, log.first());
  out->has_memory_ =
      llama_get_memory(out->context_of_model_.get()) != nullptr && !llama_model_has_encoder(out->model_.get());
  out->width_ = static_cast<int>(out->pooling_ == EncoderPooling::kRank
                                     ? llama_model_n_cls_out(out->model_.get())
                                     : static_cast<std::uint32_t>(llama_model_n_embd_out(out->model_.get())));
  return out;
}

Encoder::~Encoder() = default;

std::vector<std::vector<float>> Encoder::encode(std::span<const SharedTokens> texts,
                                                const std::function<void()>& check) {
  std::vector<std::vector<float>> out;
  ++callers_;
  try {
    while (out.size() < texts.size()) {
      const Turn turn(*this, check);
      const auto rest = texts.subspan(out.size());
      run(rest.first(texts_of_batch(rest)), out);
    }
  } catch (...) {
    --callers_;
    throw;
  }
  --callers_;
  return out;
}

void Encoder::run(std::span<const SharedTokens> texts, std::vector<std::vector<float>>& out) {
  std::size_t tokens = 0;
  for (const SharedTokens& text : texts) tokens += text.size();
  EncoderBatch batch(tokens);
  for (std::size_t i = 0; i < texts.size(); ++i) batch.add(texts[i], static_cast<llama_seq_id>(i));
  llama_context* const context = context_of_model_.get();
  if (has_memory_) llama_memory_clear(llama_get_memory(context), false);
  const int failed = has_memory_ ? llama_decode(context, batch.get()) : llama_encode(context, batch.get());
  if (failed != 0) throw std::runtime_error(fmt::format("libllama fails on {} tokens: {}", tokens, failed));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const float* const result = llama_get_embeddings_seq(context, static_cast<llama_seq_id>(i));
    if (result == nullptr) throw std::runtime_error("libllama gives no result for a text");
    out.emplace_back(result, result + width_);
    if (pooling_ != EncoderPooling::kRank) normalize(out.back());
  }
  ++batches_;
  texts_ += static_cast<long long>(texts.size());
  tokens_ += static_cast<long long>(tokens);
}

Encoder::Load Encoder::load() const {
  return {.callers = callers_, .batches = batches_, .texts = texts_, .tokens = tokens_};
}

}  // namespace palimpsest
