// Generation, a token at a time: the loop of engine/generation/generator.cpp without drafts, for Python's iterators.
#include <map>
#include <optional>

#include "palimpsest/text/sampler_fields.h"
#include "palimpsest/text/text_stream.h"
#include "session.h"

namespace palimpsest::python {
namespace {

class PyGeneration {
 public:
  PyGeneration(PySession& session, std::vector<TokenId> prompt, const SamplerOptions& sampling, long long max_tokens,
               std::vector<std::string> stop, bool ignore_end)
      : session_(session),
        vocabulary_(session.model().vocabulary),
        prompt_(std::move(prompt)),
        sampler_(sampling, vocabulary_.get(), vocabulary_->size()),
        text_(*vocabulary_, {.stop = std::move(stop), .begins_text = only_control_tokens(*vocabulary_, prompt_)}),
        max_tokens_(max_tokens),
        ignore_end_(ignore_end) {
    if (prompt_.empty()) fail("the prompt has no tokens, and this model has no BOS token: give a prompt");
    if (max_tokens < -1) fail("max_tokens {}: give a number of tokens, or -1 for no limit", max_tokens);
  }

  // The next token and the text that it completes; the last one has the text that was held back. nullopt: the end.
  std::optional<std::pair<std::string, TokenId>> next() {
    if (!reason_.empty()) return std::nullopt;
    std::vector<float> logits;
    if (tokens_ == 0) {
      logits = session_.prefill(prompt_);
      for (const TokenId token : prompt_) sampler_.accept(token);
      if (max_tokens_ == 0) return end("length", {}, -1);
    } else {
      logits = session_.decode(unread_);
    }
    const TokenId token = sampler_.sample(logits);
    if ((!ignore_end_ && vocabulary_->is_end(token)) || sampler_.stops_at(token)) {
      unread_ = -1;
      return end("end", {}, -1);
    }
    ++tokens_;
    unread_ = token;
    std::string text = text_.put(token);
    if (text_.stopped()) return end("stop", std::move(text), token);
    if (max_tokens_ >= 0 && tokens_ >= max_tokens_) return end("length", std::move(text), token);
    return std::pair(std::move(text), token);
  }

  const std::string& reason() const { return reason_; }
  long long tokens() const { return tokens_; }
  std::uint32_t seed() const { return sampler_.seed(); }
  void save(const std::string& path) { session_.save(path, &sampler_, unread_); }

 private:
  std::optional<std::pair<std::string, TokenId>> end(const char* reason, std::string text, TokenId token) {
    reason_ = reason;
    return std::pair(text + text_.finish(), token);
  }

  PySession& session_;
  std::shared_ptr<Vocabulary> vocabulary_;
  std::vector<TokenId> prompt_;
  Sampler sampler_;
  TextStream text_;
  long long max_tokens_, tokens_ = 0;
  bool ignore_end_;
  TokenId unread_ = -1;
  std::string reason_;
};

}  // namespace

void bind_generation(nb::module_& m) {
  nb::class_<PyGeneration>(m, "Generation")
      .def(
          "__init__",
          [](PyGeneration* self, PySession& session, std::vector<TokenId> prompt, long long max_tokens,
             std::vector<std::string> stop, bool ignore_eos, const std::map<std::string, double>& numbers,
             std::optional<std::vector<std::string>> breakers, std::optional<std::string> samplers,
             long long min_tokens, std::vector<TokenId> stop_tokens, std::optional<std::uint32_t> seed,
             const std::string& grammar) {
            SamplerOptions sampling = recommended_sampling(*session.model().vocabulary);
            for (const auto& [name, value] : numbers)
              if (!set_number(sampling, name, value)) fail("sampling: there is no option '{}'", name);
            if (breakers) sampling.dry_breakers = *std::move(breakers);
            if (samplers) sampling.samplers = parse_samplers(*samplers);
            sampling.min_tokens = min_tokens;
            sampling.stop_tokens = std::move(stop_tokens);
            if (seed) sampling.seed = *seed;
            sampling.grammar = grammar;
            new (self) PyGeneration(session, std::move(prompt), sampling, max_tokens, std::move(stop), ignore_eos);
          },
          nb::arg("session"), nb::arg("prompt"), nb::arg("max_tokens"), nb::arg("stop"), nb::arg("ignore_eos"),
          nb::arg("numbers"), nb::arg("breakers").none(), nb::arg("samplers").none(), nb::arg("min_tokens"),
          nb::arg("stop_tokens"), nb::arg("seed").none(), nb::arg("grammar"), nb::keep_alive<1, 2>())
      .def(
          "next",
          [](PyGeneration& self) -> nb::object {
            std::optional<std::pair<std::string, TokenId>> piece;
            {
              const nb::gil_scoped_release released;
              piece = self.next();
            }
            if (!piece) return nb::none();
            // A model may write bytes that are no UTF-8.
            return nb::make_tuple(nb::steal(PyUnicode_DecodeUTF8(
                                      piece->first.data(), static_cast<Py_ssize_t>(piece->first.size()), "replace")),
                                  piece->second);
          },
          nb::sig("def next(self) -> tuple[str, int] | None"))
      .def("save", &PyGeneration::save, nb::arg("path"), nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("stop_reason", &PyGeneration::reason)
      .def_prop_ro("tokens", &PyGeneration::tokens)
      .def_prop_ro("seed", &PyGeneration::seed);
}

}  // namespace palimpsest::python
