// Models, their vocabulary and chat template.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <thread>

#include "binding.h"
#include "palimpsest/core/cache_type.h"
#include "palimpsest/core/cpu_level.h"
#include "palimpsest/core/memory.h"
#include "palimpsest/engine/sequence/repeat.h"
#include "palimpsest/fit/own_shares.h"
#include "palimpsest/hub/models.h"

namespace palimpsest::python {
namespace {

std::atomic<pid_t> opened_in = 0;

nb::dict chat_prompt(const PyModel& self, const std::vector<std::pair<std::string, std::string>>& messages,
                     const std::string& source, bool special_in_messages, bool bos) {
  ChatInput input;
  for (const auto& [role, content] : messages) input.messages.push_back({.role = role, .content = content});
  ChatPrompt prompt;
  std::vector<TokenId> tokens;
  {
    const nb::gil_scoped_release released;
    prompt = ChatTemplate::load(self.vocabulary, source, special_in_messages)->apply(input);
    tokens = self.vocabulary->tokenize_with_breaks(prompt.text, bos, prompt.breaks);
  }
  nb::dict out;
  out["tokens"] = tokens;
  out["stop"] = prompt.stop;
  return out;
}

nb::dict shape_of(const PyModel& self) {
  const Hyperparameters& hyper = self.model->hyper();
  nb::dict out;
  out["layers"] = hyper.layers;
  nb::list heads;
  for (int i = 0; i < hyper.layers; ++i) heads.append(hyper.geometry.layer(i).kv_heads);
  out["kv_heads"] = heads;
  out["key_width"] = hyper.geometry.max_key_width();
  out["value_width"] = hyper.geometry.max_value_width();
  out["vocabulary"] = hyper.vocabulary;
  out["trained_context"] = hyper.trained_context;
  return out;
}

RopeSettings rope_settings(const std::string& scaling, const std::map<std::string, double>& numbers) {
  RopeSettings out;
  out.scaling = scaling;
  for (const auto& [name, value] : numbers) {
    if (name == "yarn_orig_ctx")
      out.original_context = std::llround(value);
    else
      (name == "rope_scale"         ? out.scale
       : name == "rope_freq_base"   ? out.freq_base
       : name == "rope_freq_scale"  ? out.freq_scale
       : name == "yarn_ext_factor"  ? out.ext_factor
       : name == "yarn_attn_factor" ? out.attn_factor
       : name == "yarn_beta_slow"   ? out.beta_slow
                                    : out.beta_fast) = value;
  }
  return out;
}

}  // namespace

void check_process() {
  if (opened_in != 0 && opened_in != ::getpid())
    fail(
        "this process was forked after a model was opened, and the engine's threads are not in it: open the model in "
        "the child only, or use multiprocessing's start method 'spawn'");
}

PyModel::PyModel(const std::string& name, std::optional<int> given_threads, const std::string& device, bool portable,
                 int context, const std::string& rope_scaling, const std::map<std::string, double>& rope) {
  check_process();
  if (given_threads && (*given_threads < 1 || *given_threads > 512))
    fail("threads {}: give a number from 1 to 512", *given_threads);
  opened_in = ::getpid();
  static const bool limited = (limit_cpu_level(), true);
  static_cast<void>(limited);
  const std::string path = resolve_model(name);
  model = Model::load(
      path, {.device = device, .portable = portable, .context = context, .rope = rope_settings(rope_scaling, rope)});
  vocabulary = Vocabulary::load(path, model->options().overrides);
  threads = given_threads ? StepThreads(*given_threads) : default_threads(model->hyper());
}

std::shared_ptr<Decoder> PyModel::decoder() const {
  check_process();
  return std::make_shared<Decoder>(model, threads);
}

SessionOptions PyModel::options(const std::string& method, const std::string& key_type, const std::string& value_type,
                                int chunk, int page_size) const {
  if (chunk < 1) fail("chunk {}: give at least 1 token", chunk);
  check_page_size(page_size, "page_size");
  SessionOptions out;
  out.method = parse_method(method);
  validate(out.method);
  out.cache_type = {parse_cache_type(key_type, "cache type of keys"),
                    parse_cache_type(value_type, "cache type of values")};
  out.chunk = chunk;
  out.page_size = page_size;
  out.memory_limit = memory_bytes();
  out.repeat = repeat_instruction(*vocabulary);
  out.profile_file = own_shares(model, *vocabulary, out, threads).file;
  return out;
}

void bind_model(nb::module_& m) {
  m.def("chat_template_names", &chat_template_names, "Names of the chat templates that need no file.");
  nb::class_<PyModel>(m, "Model")
      .def(
          "__init__",
          [](PyModel* self, const std::string& path, std::optional<int> threads, const std::string& device,
             bool portable, int context, const std::string& rope_scaling, const std::map<std::string, double>& rope) {
            const nb::gil_scoped_release released;
            new (self) PyModel(path, threads, device, portable, context, rope_scaling, rope);
          },
          nb::arg("path"), nb::arg("threads").none() = nb::none(), nb::arg("device") = "cpu",
          nb::arg("portable") = false, nb::arg("context") = 0, nb::arg("rope_scaling") = "",
          nb::arg("rope") = std::map<std::string, double>())
      .def_prop_ro("path", [](const PyModel& self) { return self.model->path(); })
      .def_prop_ro("name", [](const PyModel& self) { return self.model->hyper().name; })
      .def_prop_ro("threads", [](const PyModel& self) { return self.threads.max(); })
      .def_prop_ro("bos", [](const PyModel& self) { return self.vocabulary->bos(); })
      .def_prop_ro("eos", [](const PyModel& self) { return self.vocabulary->eos(); })
      .def_prop_ro("shape", &shape_of)
      .def_prop_ro("has_chat_template", [](const PyModel& self) { return self.vocabulary->has_chat_template(); })
      .def(
          "is_end", [](const PyModel& self, TokenId token) { return self.vocabulary->is_end(token); }, nb::arg("token"))
      .def(
          "tokenize",
          [](const PyModel& self, const std::string& text, bool bos, bool special) {
            const nb::gil_scoped_release released;
            return self.vocabulary->tokenize(text, bos, special);
          },
          nb::arg("text"), nb::arg("bos"), nb::arg("special"))
      .def(
          "detokenize",
          [](const PyModel& self, const std::vector<TokenId>& tokens, bool special) {
            for (const TokenId token : tokens)
              if (token < 0 || token >= self.vocabulary->size())
                fail("token {} is not in the vocabulary of {}", token, self.vocabulary->size());
            const std::string text = self.vocabulary->detokenize(tokens, special);
            return nb::bytes(text.data(), text.size());
          },
          nb::arg("tokens"), nb::arg("special"))
      .def("chat_prompt", &chat_prompt, nb::arg("messages"), nb::arg("template"), nb::arg("special_in_messages"),
           nb::arg("bos"));
}

}  // namespace palimpsest::python
