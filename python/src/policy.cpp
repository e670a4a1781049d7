// Policies written in Python: entries of the engine's registry that call a Python object.
//
// score() runs on the engine's threads. Each call takes the GIL and costs some microseconds besides the policy's own
// work, so heads are scored one after another.
#include "palimpsest/policy/policy.h"

#include <cmath>
#include <deque>
#include <map>

#include "binding.h"

namespace palimpsest::python {
namespace {

// What score() gets. Its arrays are copies, so that a policy may keep them; the object itself ends with the call.
class PyHead {
 public:
  PyHead(const HeadView& view, std::span<const float> score) : view_(&view), score_(score) {}
  void end() { view_ = nullptr; }

  const HeadView& view() const {
    if (view_ == nullptr) fail("a policy's head is valid only during score(): keep copies of its arrays, not the head");
    return *view_;
  }
  Floats score() const { return view(), numbers(score_); }
  Floats attention() const { return needed(view().attention, "attention"); }
  Floats attention_sum() const { return needed(view().attention_sum, "attention_sum"); }
  Floats keys() const { return matrix(view().keys, "keys"); }
  Floats values() const { return matrix(view().values, "values"); }
  Floats query_mean() const { return matrix(view().queries.mean, "query_moments"); }
  Floats query_covariance() const { return matrix(view().queries.covariance, "query_moments"); }
  Integers positions() const {
    std::vector<std::int64_t> out(view().position.begin(), view().position.end());
    const std::size_t count = out.size();
    return as_array(std::move(out), {count});
  }

 private:
  static Floats numbers(std::span<const float> from) {
    return as_array(std::vector<float>(from.begin(), from.end()), {from.size()});
  }
  static Floats needed(std::span<const float> from, const char* need) {
    if (from.empty()) fail("this head has no {0}: name '{0}' in the policy's `needs`", need);
    return numbers(from);
  }
  static Floats matrix(const Rows& rows, const char* need) {
    if (rows.empty()) fail("this head has no {0}: name '{0}' in the policy's `needs`", need);
    std::vector<float> out;
    for (int i = 0; i < rows.count; ++i) out.insert(out.end(), rows[i].begin(), rows[i].end());
    return as_array(std::move(out), {at(rows.count), at(rows.width)});
  }

  const HeadView* view_;
  std::span<const float> score_;
};

// Names of `needs`; some have a number.
const std::map<std::string, void (*)(int, Signals&)> kNeeds = {
    {"attention", [](int, Signals& out) { out.attention_sum = AttentionSum{}; }},
    {"attention_max", [](int, Signals& out) { out.attention_max = AttentionMax{}; }},
    {"attention_window", [](int n, Signals& out) { out.attention_window = AttentionWindow{.queries = n}; }},
    {"attention_sum", [](int, Signals& out) { out.attention_sum = AttentionSum{}; }},
    {"keys", [](int, Signals& out) { out.keys = Keys{}; }},
    {"values", [](int, Signals& out) { out.values = Values{}; }},
    {"query_moments", [](int, Signals& out) { out.query_moments = QueryMoments{}; }},
    {"ordered", [](int, Signals& out) { out.ordered = true; }},
    {"on_insert", [](int, Signals& out) { out.score_on_insert = true; }},
};

// `needs` as the package passes it: names that it has checked, with a number, 0 for those that have none.
Signals signals_of(const std::map<std::string, int>& needs, const std::string& policy) {
  Signals out;
  for (const auto& [name, number] : needs) {
    if (name == "attention_window" && number < 1)
      fail("policy '{}': give the window's queries: needs = {{'attention_window': 32}}", policy);
    kNeeds.at(name)(number, out);
  }
  return out;
}

class PyPolicy final : public Policy {
 public:
  PyPolicy(std::string name, nb::object object, const std::map<std::string, int>& needs)
      : name_(std::move(name)), object_(std::move(object)), signals_(signals_of(needs, name_)) {}
  ~PyPolicy() override {
    if (!nb::is_alive()) {  // the interpreter is gone, and its objects with it
      static_cast<void>(object_.release());
      return;
    }
    const nb::gil_scoped_acquire locked;
    object_.reset();
  }

  Signals signals() const override { return signals_; }
  void score(const HeadView& view, std::span<float> score) const override {
    const nb::gil_scoped_acquire locked;
    nb::object head = nb::cast(PyHead(view, score), nb::rv_policy::move);
    PyHead& ours = nb::cast<PyHead&>(head);
    try {
      const nb::object result = object_.attr("score")(head);
      ours.end();
      copy(result, score);
    } catch (nb::python_error& error) {
      ours.end();
      const std::string what = nb::str(error.type().attr("__name__")).c_str();
      throw PolicyFailed(
          fmt::format("policy '{}' failed in score(): {}: {}", name_, what, nb::str(error.value()).c_str()),
          std::move(error));
    } catch (...) {
      ours.end();
      throw;
    }
  }

 private:
  void copy(const nb::object& result, std::span<float> score) const {
    nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu> array;
    if (!nb::try_cast(result, array))
      fail("policy '{}': score() returned {}, not a NumPy array of {} numbers", name_,
           nb::str(result.type().attr("__name__")).c_str(), score.size());
    if (array.shape(0) != score.size())
      fail("policy '{}': score() returned {} scores for {} tokens: return one for each of head.positions", name_,
           array.shape(0), score.size());
    for (std::size_t i = 0; i < score.size(); ++i) {
      if (std::isnan(array(i))) fail("policy '{}': score() returned NaN for token {}: return numbers", name_, i);
      score[i] = array(i);
    }
  }

  std::string name_;
  nb::object object_;
  Signals signals_;
};

// Names live as long as the registry.
void register_python_policy(const std::string& name, const std::string& summary, const nb::object& make) {
  static auto& texts = *new std::deque<std::string>();
  const std::string& kept = texts.emplace_back(name);
  const std::string& about = texts.emplace_back(summary);
  PyObject* const factory = nb::object(make).release().ptr();  // never released: the registry outlives the interpreter
  register_policy({kept, about, [factory, &kept]() -> std::unique_ptr<Policy> {
                     const nb::gil_scoped_acquire locked;
                     try {
                       const nb::tuple made = nb::cast<nb::tuple>(nb::handle(factory)());
                       std::map<std::string, int> needs;
                       for (const auto& [key, value] : nb::cast<nb::dict>(made[1]))
                         needs[nb::cast<std::string>(key)] = nb::cast<int>(value);
                       return std::make_unique<PyPolicy>(kept, nb::object(made[0]), needs);
                     } catch (nb::python_error& error) {
                       const std::string what = nb::str(error.value()).c_str();
                       throw PolicyFailed(fmt::format("policy '{}' cannot be made: {}", kept, what), std::move(error));
                     }
                   }});
}

}  // namespace

void bind_policy(nb::module_& m) {
  nb::class_<PyHead>(
      m, "Head",
      "The tokens of one KV head, as a policy's score() gets them. n: tokens, in slot order; oldest first "
      "with 'ordered', and with 'on_insert', which has the new tokens only. An empty slot has position -1 "
      "and any values; its score is ignored. Valid during score(); its arrays are copies.")
      .def_prop_ro("positions", &PyHead::positions, nb::rv_policy::automatic,
                   "int64 [n]: positions in the text; -1: an empty slot.")
      .def_prop_ro("score", &PyHead::score, nb::rv_policy::automatic,
                   "float32 [n]: what score() returned last for each token; 0 for a new one.")
      .def_prop_ro("attention", &PyHead::attention, nb::rv_policy::automatic,
                   "float32 [n]: attention weights, mean over the query group: of the step's queries, summed "
                   "('attention'), or of the window's ('attention_window'); their max ('attention_max').")
      .def_prop_ro("attention_sum", &PyHead::attention_sum, nb::rv_policy::automatic,
                   "float32 [n]: weights of all queries so far ('attention_sum' with 'attention_window').")
      .def_prop_ro("keys", &PyHead::keys, nb::rv_policy::automatic, "float32 [n, key_width]: keys ('keys').")
      .def_prop_ro("values", &PyHead::values, nb::rv_policy::automatic, "float32 [n, value_width]: values ('values').")
      .def_prop_ro("query_mean", &PyHead::query_mean, nb::rv_policy::automatic,
                   "float32 [group, key_width]: mean of the queries expected next ('query_moments').")
      .def_prop_ro("query_covariance", &PyHead::query_covariance, nb::rv_policy::automatic,
                   "float32 [group * key_width, key_width]: their covariances ('query_moments').")
      .def_prop_ro(
          "inserted", [](const PyHead& self) { return self.view().inserted; },
          "Tokens added since the last call: 1 in decode, up to a chunk in a prompt.")
      .def_prop_ro(
          "index", [](const PyHead& self) { return self.view().table; },
          "The head's number: KV heads of all layers in order.");
  m.def(
      "policy_needs",
      [] {
        std::vector<std::string> names;
        for (const auto& each : kNeeds) names.push_back(each.first);
        return names;
      },
      "Names that a policy's `needs` may have.");
  m.def("register_policy", &register_python_policy, nb::arg("name"), nb::arg("summary"), nb::arg("make"),
        "`make()` returns a policy object and its needs, a dictionary of names and numbers.");
}

}  // namespace palimpsest::python
