#include "palimpsest/text/vocabulary.h"

#include <fmt/format.h>
#include <llama.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <exception>
#include <mutex>
#include <string_view>
#include <utility>

#include "palimpsest/core/error.h"
#include "palimpsest/text/dry_cache.h"
#include "palimpsest/text/libllama_file.h"
#include "palimpsest/text/message_marks.h"
#include "palimpsest/text/vocabulary_check.h"

namespace palimpsest {
namespace {

// Calls `fill(buffer, size)` by libllama's convention: a negative result is the required size.
template <typename T, typename Fill>
T filled(std::size_t guess, Fill fill) {
  T buffer(guess, {});
  std::int32_t n = 0;
  try {
    n = fill(buffer.data(), static_cast<std::int32_t>(buffer.size()));
  } catch (const std::exception& e) {
    fail("libllama's tokenizer fails ({}): convert the model again", e.what());
  }
  if (n == INT32_MIN) fail("the text is too long for the tokenizer: cut it into parts below 2 GiB");
  if (n < 0) {
    buffer.resize(static_cast<std::size_t>(-n));
    n = fill(buffer.data(), static_cast<std::int32_t>(buffer.size()));
  }
  buffer.resize(static_cast<std::size_t>(n));
  return buffer;
}

// A vocabulary does not depend on the architecture: files of families that libllama does not support (gptj, opt) are
// loaded as llama.
llama_model* load_vocabulary(const std::string& path, std::span<const GgufOverride> overrides) {
  std::vector<llama_model_kv_override> list = for_libllama(overrides);
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  for (bool as_llama = false;; as_llama = true) {
    params.kv_overrides = list.size() > 1 ? list.data() : nullptr;
    const LogCapture log;
    if (llama_model* const model = llama_model_load_from_file(path.c_str(), params)) return model;
    const std::string first = log.first();
    if (as_llama || first.find("model architecture") == std::string::npos)
      fail("the vocabulary in '{}' cannot be read: {}", path, first);
    list.insert(list.begin(), for_libllama({"general.architecture", std::string("llama")}));
  }
}

}  // namespace

struct Vocabulary::Impl {
  llama_model* model = nullptr;
  const llama_vocab* vocab = nullptr;
  std::string path;
  std::vector<GgufOverride> overrides;
  bool adds_space = false;  // tokenization adds a leading space
  using Texts = std::pair<std::vector<TokenId>, std::shared_ptr<const TokenTexts>>;
  std::mutex texts_mutex;
  std::vector<Texts> texts;  // by control tokens
  DryCache dry;
  ~Impl() { llama_model_free(model); }

  std::string piece(TokenId token, bool special, bool without_space) const {
    if (token < 0 || token >= llama_vocab_n_tokens(vocab))
      fail("token {} is not in the vocabulary of {} tokens", token, llama_vocab_n_tokens(vocab));
    return filled<std::string>(32, [&](char* buffer, std::int32_t size) {
      return llama_token_to_piece(vocab, token, buffer, size, without_space ? 1 : 0, special);
    });
  }
  std::optional<std::string> metadata(const char* key) const {
    for (const GgufOverride& given : overrides)
      if (given.key == key) return std::visit([](const auto& value) { return fmt::format("{}", value); }, given.value);
    char value[256] = "";
    const std::int32_t size = llama_model_meta_val_str(model, key, value, sizeof value);
    if (size < 0) return std::nullopt;
    return std::string(value);
  }
  // libllama's rule: SentencePiece does unless the file says otherwise.
  bool adds_space_prefix() const {
    if (const auto given = metadata("tokenizer.ggml.add_space_prefix")) return *given == "true";
    return llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_SPM;
  }
};

Vocabulary::Vocabulary() : impl_(std::make_unique<Impl>()) {}
Vocabulary::~Vocabulary() = default;

std::shared_ptr<Vocabulary> Vocabulary::load(const std::string& gguf_path, std::span<const GgufOverride> overrides) {
  check_vocabulary(gguf_path, overrides);
  std::shared_ptr<Vocabulary> vocabulary(new Vocabulary);
  vocabulary->impl_->path = gguf_path;
  vocabulary->impl_->overrides.assign(overrides.begin(), overrides.end());
  vocabulary->impl_->model = load_vocabulary(gguf_path, overrides);
  vocabulary->impl_->vocab = llama_model_get_vocab(vocabulary->impl_->model);
  if (vocabulary->size() == 0) fail("'{}' has no vocabulary: convert the model together with its tokenizer", gguf_path);
  vocabulary->impl_->adds_space = vocabulary->impl_->adds_space_prefix();
  return vocabulary;
}

std::shared_ptr<const llama_sampler> Vocabulary::dry_sampler(const SamplerOptions& options) const {
  return impl_->dry.get(options, impl_->vocab);
}

std::optional<std::string> Vocabulary::metadata(const char* key) const {
  return impl_->metadata(key);
}

int Vocabulary::trained_context() const {
  const std::string key = metadata("general.architecture").value_or("") + ".context_length";
  const std::string text = metadata(key.c_str()).value_or("");
  int tokens = 0;
  std::from_chars(text.data(), text.data() + text.size(), tokens);
  return std::max(tokens, 0);
}

int Vocabulary::size() const {
  return llama_vocab_n_tokens(impl_->vocab);
}

std::string Vocabulary::kind() const {
  switch (llama_vocab_type(impl_->vocab)) {
    case LLAMA_VOCAB_TYPE_SPM:
      return "SPM";
    case LLAMA_VOCAB_TYPE_BPE:
      return "BPE";
    case LLAMA_VOCAB_TYPE_WPM:
      return "WPM";
    case LLAMA_VOCAB_TYPE_UGM:
      return "UGM";
    case LLAMA_VOCAB_TYPE_RWKV:
      return "RWKV";
    default:
      return "other";
  }
}

std::vector<TokenId> Vocabulary::tokenize(std::string_view text, bool add_bos, bool special) const {
  if (text.size() >= INT_MAX) fail("the text is too long for the tokenizer: cut it into parts below 2 GiB");
  auto tokens = filled<std::vector<TokenId>>(text.size() / 2 + 8, [&](TokenId* buffer, std::int32_t size) {
    return llama_tokenize(impl_->vocab, text.data(), static_cast<std::int32_t>(text.size()), buffer, size, add_bos,
                          special);
  });
  if (add_bos && llama_vocab_get_add_eos(impl_->vocab) && !tokens.empty() && tokens.back() == eos()) tokens.pop_back();
  return tokens;
}

// With a mark at each break, then the runs between control tokens that have marks again, without marks.
std::vector<TokenId> Vocabulary::tokenize_with_breaks(std::string_view text, bool add_bos,
                                                      std::span<const std::size_t> breaks) const {
  if (breaks.empty()) return tokenize(text, add_bos, true);
  const std::string mark = unused_character({text});
  std::string marked;
  std::size_t from = 0;
  for (const std::size_t at : breaks) {
    marked.append(text.substr(from, at - from)).append(mark);
    from = at;
  }
  marked.append(text.substr(from));

  std::vector<TokenId> out, run;
  const auto end_run = [&] {
    std::string plain = run.empty() ? std::string() : detokenize(run, true);
    if (!MessageMarks::take_out(plain, mark).empty()) run = tokenize(plain, false, false);
    out.insert(out.end(), run.begin(), run.end());
    run.clear();
  };
  constexpr int kApart = LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN | LLAMA_TOKEN_ATTR_USER_DEFINED;
  for (const TokenId token : tokenize(marked, add_bos, true)) {
    if ((llama_vocab_get_attr(impl_->vocab, token) & kApart) == 0) {
      run.push_back(token);
      continue;
    }
    end_run();
    out.push_back(token);
  }
  end_run();
  return out;
}

std::vector<std::string> Vocabulary::control_texts() const {
  std::vector<std::string> texts;
  for (TokenId token = 0; token < size(); ++token)
    if ((llama_vocab_get_attr(impl_->vocab, token) & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN)) != 0)
      texts.emplace_back(llama_vocab_get_text(impl_->vocab, token));
  return texts;
}

std::string Vocabulary::piece(TokenId token, bool special) const {
  return impl_->piece(token, special, false);
}

// Does not use llama_detokenize: it removes spaces before punctuation if the vocabulary says so.
std::string Vocabulary::detokenize(std::span<const TokenId> tokens, bool special) const {
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) text += impl_->piece(tokens[i], special, impl_->adds_space && i == 0);
  return text;
}

TokenId Vocabulary::bos() const {
  return llama_vocab_bos(impl_->vocab);
}

TokenId Vocabulary::eos() const {
  return llama_vocab_eos(impl_->vocab);
}

bool Vocabulary::is_end(TokenId token) const {
  return llama_vocab_is_eog(impl_->vocab, token);
}

bool Vocabulary::is_control(TokenId token) const {
  return llama_vocab_is_control(impl_->vocab, token);
}

bool Vocabulary::has_chat_template() const {
  return llama_model_chat_template(impl_->model, nullptr) != nullptr;
}

std::string Vocabulary::chat_template() const {
  const char* const text = llama_model_chat_template(impl_->model, nullptr);
  return text == nullptr ? "" : text;
}

std::shared_ptr<const TokenTexts> Vocabulary::token_texts(const std::vector<TokenId>& control) const {
  constexpr std::size_t kKept = 4;
  const std::lock_guard lock(impl_->texts_mutex);
  auto& kept = impl_->texts;
  const auto at = std::ranges::find(kept, control, &Impl::Texts::first);
  if (at != kept.end()) return at->second;
  std::vector<std::string> texts(static_cast<std::size_t>(size()));
  for (TokenId token = 0; token < size(); ++token)
    if (!is_end(token)) texts[static_cast<std::size_t>(token)] = piece(token);
  for (const TokenId token : control) texts[static_cast<std::size_t>(token)] = piece(token, true);
  if (kept.size() == kKept) kept.erase(kept.begin() + 1);  // the first is that without control tokens, usually
  return kept.emplace_back(control, std::make_shared<const TokenTexts>(texts)).second;
}

const std::string& Vocabulary::path() const {
  return impl_->path;
}

const llama_model* Vocabulary::model() const {
  return impl_->model;
}

}  // namespace palimpsest
