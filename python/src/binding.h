// Shared by the files of the Python module.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/core/types.h"
#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/model/model.h"
#include "palimpsest/text/chat_template.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest::python {

namespace nb = nanobind;
using Floats = nb::ndarray<nb::numpy, float, nb::c_contig>;
using Integers = nb::ndarray<nb::numpy, std::int64_t, nb::c_contig>;

// A Python exception in a policy: an Error with our sentence, and the exception as its cause.
class PolicyFailed : public Error {
 public:
  PolicyFailed(const std::string& what, nb::python_error&& cause)
      : Error(what), cause_(std::make_shared<std::optional<nb::python_error>>(std::move(cause))) {}
  // The exception, for its first caller. Then it is forgotten: a session keeps the failure of its last step, and the
  // exception's frames keep the session.
  nb::object take_cause() const {
    nb::object cause = cause_->has_value() ? nb::borrow((*cause_)->value()) : nb::object();
    cause_->reset();
    return cause;
  }

 private:
  std::shared_ptr<std::optional<nb::python_error>> cause_;  // its destructor takes the GIL
};

// Passes `data` on to NumPy without a copy.
template <typename T>
nb::ndarray<nb::numpy, T, nb::c_contig> as_array(std::vector<T> data, std::vector<std::size_t> shape) {
  auto* const owned = new std::vector<T>(std::move(data));
  const nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return {owned->data(), shape.size(), shape.data(), owner};
}

// Called between the parts of long work, without the GIL: throws KeyboardInterrupt after Ctrl-C.
inline void check_signals() {
  const nb::gil_scoped_acquire locked;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

// Throws Error in a process that was forked after a model was opened: the engine's threads do not exist there.
void check_process();

struct PyModel {
  // `rope`: numbers by the name of RopeSettings' option: rope_scale, yarn_beta_fast, ...
  PyModel(const std::string& name, std::optional<int> threads, const std::string& device, bool portable, int context,
          const std::string& rope_scaling, const std::map<std::string, double>& rope);
  std::shared_ptr<Model> model;
  std::shared_ptr<Vocabulary> vocabulary;
  StepThreads threads = 1;

  std::shared_ptr<Decoder> decoder() const;
  // As the command's: a limit of the machine's memory, and the instruction to repeat prompts.
  SessionOptions options(const std::string& method, const std::string& key_type, const std::string& value_type,
                         int chunk, int page_size) const;
};

void bind_model(nb::module_& module);
void bind_session(nb::module_& module);
void bind_memory(nb::module_& module);
void bind_generation(nb::module_& module);
void bind_policy(nb::module_& module);
void bind_evaluation(nb::module_& module);
void bind_server(nb::module_& module);
void bind_hub(nb::module_& module);

}  // namespace palimpsest::python
