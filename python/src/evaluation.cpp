// Parts of the evaluations: prompts, answers, perplexity, scores. python/palimpsest/evaluate.py puts them together.
#include <algorithm>

#include "palimpsest/eval/asker.h"
#include "palimpsest/eval/bootstrap.h"
#include "palimpsest/eval/data.h"
#include "palimpsest/eval/likelihood.h"
#include "palimpsest/eval/needle.h"
#include "palimpsest/eval/perplexity.h"
#include "palimpsest/eval/ruler.h"
#include "session.h"

namespace palimpsest::python {
namespace {

struct PyHaystack {
  Haystack haystack;
};

struct PyAsker {
  PyModel model;
  Asker asker;
  std::mutex mutex;
};

nb::dict dict_of(const Perplexity& p) {
  nb::dict out;
  out["perplexity"] = p.value();
  out["nll"] = p.nll;
  out["nll_error"] = p.nll_error;
  out["predicted"] = p.predicted;
  out["evicted"] = p.evicted;
  out["cache_bytes"] = p.cache_bytes;
  out["cache_bytes_peak"] = p.cache_bytes_peak;
  out["seconds"] = p.seconds;
  out["losses"] = as_array(std::vector<float>(p.losses), {p.losses.size()});
  return out;
}

}  // namespace

void bind_evaluation(nb::module_& m) {
  nb::class_<PyHaystack>(m, "Haystack")
      .def("__init__",
           [](PyHaystack* self, const std::string& text) {
             new (self) PyHaystack{Haystack(text.empty() ? std::string(eval_data("haystack.txt")) : text,
                                            text.empty() ? "the included haystack" : "the haystack")};
           })
      .def_prop_ro("sentences", [](const PyHaystack& self) { return self.haystack.sentences(); });
  m.def("make_needle", [](const PyModel& model, const PyHaystack& haystack, const std::string& kind, long long length,
                          double depth, int questions, std::uint64_t seed) {
    Draw draw(seed);
    static const std::vector<NeedleKind> kinds = needle_kinds();
    const NeedleKind& found = needle_kind(kinds, kind);
    const NeedlePrompt made =
        make_needle(found, {length, depth, questions}, haystack.haystack, *model.vocabulary, draw);
    nb::dict out;
    out["context"] = made.context;
    out["questions"] = made.questions;
    out["starts"] = made.starts;
    out["answers"] = made.answers;
    out["tokens"] = found.tokens;
    return out;
  });
  m.def("make_ruler", [](const PyModel& model, const PyHaystack& haystack, const std::string& task, long long length,
                         std::uint64_t seed) {
    Draw draw(seed);
    const RulerPrompt made = make_ruler(task, length, haystack.haystack, *model.vocabulary, draw);
    nb::dict out;
    out["context"] = made.context;
    out["question"] = made.question;
    out["answers"] = made.answers;
    out["tokens"] = made.tokens;
    return out;
  });
  m.def("ruler_tasks", &ruler_tasks);
  m.def("ruler_score",
        [](const std::string& text, const std::vector<std::string>& answers) { return ruler_score(text, answers); });
  m.def("contains_word",
        [](const std::string& answer, const std::string& word) { return contains_word(answer, word); });
  m.def("bootstrap", [](const std::vector<std::pair<double, double>>& blocks) {
    std::vector<TextBlock> all;
    for (const auto& [sum, weight] : blocks) all.push_back({sum, weight});
    const Interval interval = bootstrap(all);
    return nb::make_tuple(interval.mean, interval.low, interval.high);
  });
  m.def("wilson", [](long long right, long long asked) {
    const Interval interval = wilson(right, asked);
    return nb::make_tuple(interval.mean, interval.low, interval.high);
  });
  m.def(
      "perplexity",
      [](PySession& session, const std::vector<TokenId>& tokens, long long prompt) {
        Perplexity result;
        {
          const nb::gil_scoped_release released;
          const auto locked = session.lock();
          session.stepped();
          result = perplexity(
              session.session(), tokens, std::max(1LL, static_cast<long long>(tokens.size())),
              [](long long, long long) { return check_signals(), true; }, prompt);
        }
        return dict_of(result);
      },
      nb::arg("session"), nb::arg("tokens"), nb::arg("prompt") = 0);
  m.def("log_likelihoods", [](PySession& session, const std::vector<TokenId>& tokens) {
    std::vector<float> out;
    {
      const nb::gil_scoped_release released;
      const std::vector<float> logits = session.read(tokens);
      const std::size_t width = logits.size() / tokens.size();
      for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
        out.push_back(
            static_cast<float>(-negative_log_likelihood(std::span(logits).subspan(i * width, width), tokens[i + 1])));
    }
    const std::size_t count = out.size();
    return as_array(std::move(out), {count});
  });
  nb::class_<PyAsker>(m, "Asker")
      .def("__init__",
           [](PyAsker* self, const PyModel& model, const std::string& method, const std::string& key_type,
              const std::string& value_type, int chunk, int page_size) {
             const nb::gil_scoped_release released;
             new (self) PyAsker{model,
                                Asker(model.decoder(), model.vocabulary,
                                      model.options(method, key_type, value_type, chunk, page_size)),
                                {}};
           })
      .def(
          "ask",
          [](PyAsker& self, const std::string& context, const std::vector<std::string>& questions, bool before,
             int max_tokens, bool stop_at_newline, const std::vector<std::string>& starts, bool chat,
             const std::string& system) {
            std::vector<QuestionAnswer> answers;
            {
              const nb::gil_scoped_release released;
              check_process();
              const std::lock_guard locked(self.mutex);
              const auto messages = chat ? ChatTemplate::load(self.model.vocabulary, "") : nullptr;
              const Prompt prompt =
                  chat ? question_prompt(*self.model.vocabulary, messages.get(), context, questions, starts, system)
                       : tokenize_prompt(*self.model.vocabulary, context, questions, starts);
              answers = self.asker.ask(prompt, before ? QuestionSeen::kBefore : QuestionSeen::kAfter,
                                       {.max_tokens = max_tokens, .stop_at_newline = stop_at_newline});
            }
            nb::list out;
            for (const QuestionAnswer& each : answers) {
              nb::dict one;
              one["text"] = nb::steal(
                  PyUnicode_DecodeUTF8(each.text.data(), static_cast<Py_ssize_t>(each.text.size()), "replace"));
              one["tokens"] = each.tokens;
              one["prompt_tokens"] = each.prompt_tokens;
              one["evicted"] = each.evicted;
              one["prompt_ms"] = each.prompt_ms;
              one["ms"] = each.ms;
              out.append(one);
            }
            return out;
          },
          nb::arg("context"), nb::arg("questions"), nb::arg("before"), nb::arg("max_tokens"),
          nb::arg("stop_at_newline"), nb::arg("starts") = std::vector<std::string>(), nb::arg("chat") = false,
          nb::arg("system") = "")
      .def_prop_ro("cache_bytes_peak", [](const PyAsker& self) {
        const Cache& cache = self.asker.session().cache();
        return cache.bytes_peak() + cache.bytes_tables();
      });
}

}  // namespace palimpsest::python
