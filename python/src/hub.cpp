// Models by name: fetched and found.
#include "palimpsest/hub/models.h"

#include "binding.h"
#include "palimpsest/hub/catalogue.h"
#include "palimpsest/hub/pull.h"

namespace palimpsest::python {
namespace {

std::string pull(const std::string& model, const std::string& save_as, const nb::object& progress) {
  PullOptions options;
  options.name = save_as;
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    const nb::gil_scoped_acquire locked;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (!progress.is_none()) progress(done, total);
    return true;
  };
  const nb::gil_scoped_release released;
  return pull_model(model, options).model.path().string();
}

nb::list pulled() {
  nb::list out;
  for (const PulledModel& model : pulled_models()) {
    nb::dict each;
    each["name"] = model.record.name;
    each["path"] = model.path().string();
    each["bytes"] = model.record.bytes();
    each["licence"] = model.record.licence;
    each["source"] = model.record.source;
    out.append(each);
  }
  return out;
}

nb::list names_in_catalogue() {
  nb::list out;
  for (const CatalogueEntry& entry : catalogue()) out.append(std::string(entry.name));
  return out;
}

}  // namespace

void bind_hub(nb::module_& m) {
  m.def("pull", &pull, nb::arg("model"), nb::arg("save_as"), nb::arg("progress").none(),
        "Fetches a model; returns the path of its file.");
  m.def("resolve_model", &resolve_model, nb::arg("model"), nb::call_guard<nb::gil_scoped_release>(),
        "The file of a name; a path goes through.");
  m.def("pulled_models", &pulled, "The pulled models: dictionaries with name, path, bytes, licence, source.");
  m.def("catalogue", &names_in_catalogue, "The names that can be pulled without an address.");
}

}  // namespace palimpsest::python
