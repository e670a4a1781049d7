// The module palimpsest._palimpsest. The package's Python files are its interface to users.
#include "binding.h"
#include "palimpsest/core/version.h"
#include "palimpsest/evict/method.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest::python {
namespace {

// Raises `type` with the policy's own exception as __cause__.
void raise_with_cause(const PolicyFailed& failure, PyObject* type) {
  PyObject* const raised = PyObject_CallFunction(type, "s", failure.what());
  if (raised == nullptr) return;
  if (nb::object cause = failure.take_cause()) PyException_SetCause(raised, cause.release().ptr());
  PyErr_SetObject(type, raised);
  Py_DECREF(raised);
}

nb::list method_list() {
  nb::list out;
  for (const MethodRow& row : methods()) {
    nb::dict each;
    each["name"] = std::string(row.name);
    each["summary"] = std::string(row.summary);
    each["paper"] = std::string(row.paper);
    each["policy"] = row.preset.policy;
    each["method"] = spell_out(row.preset);
    out.append(each);
  }
  return out;
}

nb::list policy_list() {
  nb::list out;
  for (const PolicyEntry& entry : policies()) out.append(std::string(entry.name));
  return out;
}

std::string method_text(const std::string& method, const std::vector<std::pair<std::string, std::string>>& options) {
  Method parsed = parse_method(method);
  for (const auto& [key, value] : options) set_option(parsed, key, value);
  validate(parsed);
  return spell_out(parsed);
}

}  // namespace

NB_MODULE(_palimpsest, m) {
  m.doc() = "The engine of the package palimpsest. Use the package, not this module.";
  const nb::exception<Error> error(m, "Error", PyExc_ValueError);
  error.attr("__doc__") = "Invalid input or environment: one line with the problem and the remedy.";
  const std::string policy_error_name = nb::cast<std::string>(m.attr("__name__")) + ".PolicyError";
  static PyObject* const policy_error = PyErr_NewExceptionWithDoc(
      policy_error_name.c_str(),
      "A policy written in Python failed: the message names the policy, `__cause__` is its exception.", error.ptr(),
      nullptr);
  m.attr("PolicyError") = nb::handle(policy_error);
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const PolicyFailed& failure) {
      raise_with_cause(failure, policy_error);
    }
  });
  nb::set_leak_warnings(false);  // registered policies live as long as the registry: until the process ends
  m.attr("version") = version();
  m.def("methods", &method_list,
        "All methods: dictionaries with name, summary, paper, policy, and the method spelled out.");
  m.def("policies", &policy_list, "The names of all policies, those written in Python included.");
  m.def("spell_method", &method_text, nb::arg("method"),
        nb::arg("options") = std::vector<std::pair<std::string, std::string>>(),
        "A method with every key: 'streaming:budget=256' and options that replace some. Raises Error for an illegal "
        "one.");
  bind_model(m);
  bind_session(m);
  bind_memory(m);
  bind_generation(m);
  bind_policy(m);
  bind_evaluation(m);
  bind_server(m);
  bind_hub(m);
}

}  // namespace palimpsest::python
