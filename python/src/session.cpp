#include "session.h"

#include <algorithm>
#include <cmath>

#include "palimpsest/attention/read_rows.h"
#include "palimpsest/engine/sequence/snapshot.h"
#include "palimpsest/engine/sequence/text_edit.h"

namespace palimpsest::python {

PySession::PySession(const PyModel& model, const SessionOptions& options, bool record_memory)
    : model_(model), session_(model.decoder(), options), record_memory_(record_memory) {
  if (record_memory) session_.record_memory();
}

std::unique_lock<std::mutex> PySession::lock() {
  check_process();
  return std::unique_lock(mutex_);
}

void PySession::check(const std::vector<TokenId>& tokens) const {
  const int vocabulary = model_.model->hyper().vocabulary;
  for (const TokenId token : tokens)
    if (token < 0 || token >= vocabulary) fail("token {} is not in the vocabulary of {}", token, vocabulary);
}

std::vector<float> PySession::prefill(const std::vector<TokenId>& tokens) {
  if (tokens.empty()) fail("no tokens to read: give at least one");
  check(tokens);
  const auto locked = lock();
  ++step_;
  const auto logits = session_.prefill(tokens, [](long long, long long) { return check_signals(), true; });
  append(tokens);
  return {logits.begin(), logits.end()};
}

std::vector<float> PySession::decode(TokenId token) {
  check({token});
  const auto locked = lock();
  ++step_;
  const auto logits = session_.decode(token);
  tokens_.push_back(token);
  return {logits.begin(), logits.end()};
}

std::vector<float> PySession::read(const std::vector<TokenId>& tokens) {
  if (tokens.empty()) fail("no tokens to read: give at least one");
  check(tokens);
  const auto locked = lock();
  ++step_;
  std::vector<float> all;
  all.reserve(tokens.size() * static_cast<std::size_t>(model_.model->hyper().vocabulary));
  session_.read(
      tokens, [&](long long, std::span<const float> logits) { all.insert(all.end(), logits.begin(), logits.end()); },
      [](long long, long long) { return check_signals(), true; });
  append(tokens);
  return all;
}

void PySession::rewind(Position position) {
  const auto locked = lock();
  ++step_;
  session_.rewind(position);
  if (position >= 0 && static_cast<std::size_t>(position) < tokens_.size())
    tokens_.resize(static_cast<std::size_t>(position));
}

std::vector<float> PySession::edit(Position first, Position last, const std::vector<TokenId>& tokens,
                                   const std::string& mode) {
  check(tokens);
  const EditMode how = parse_edit_mode(mode);
  const auto locked = lock();
  ++step_;
  const auto logits = session_.edit(first, last, tokens, how, tokens_);
  tokens_ = edited(tokens_, {first, last}, tokens);
  return {logits.begin(), logits.end()};
}

void PySession::clear() {
  const auto locked = lock();
  ++step_;
  session_.clear();
  tokens_.clear();
}

void PySession::save(const std::string& path, const Sampler* sampler, TokenId unread) {
  const auto locked = lock();
  SnapshotText text{tokens_, unread};
  if (unread >= 0) text.tokens.push_back(unread);
  save_snapshot(path, session_, sampler, text);
}

TokenId PySession::restore(const std::string& path, Sampler* sampler) {
  const auto locked = lock();
  ++step_;
  tokens_.clear();
  SnapshotText text = load_snapshot(path, session_, sampler);
  tokens_ = std::move(text.tokens);
  if (text.unread >= 0 && !tokens_.empty()) tokens_.pop_back();
  return text.unread;
}

std::unique_ptr<PySession> PySession::fork() {
  const auto locked = lock();
  std::vector<std::byte> bytes;
  ByteWriter out([&](std::span<const std::byte> data) { bytes.insert(bytes.end(), data.begin(), data.end()); });
  session_.sequence().save(out);
  auto copy = std::make_unique<PySession>(model_, session_.options(), record_memory_);
  ByteReader in(bytes, "the copy of a session is damaged");
  copy->session_.sequence().load(in);
  copy->tokens_ = tokens_;
  return copy;
}

int PySession::flat_head(int layer, int head) const {
  const HeadGeometry& geometry = session_.cache().geometry();
  if (layer < 0 || layer >= geometry.layers())
    fail("layer {}: the model has layers 0 to {}", layer, geometry.layers() - 1);
  if (head < 0 || head >= geometry.layer(layer).kv_heads)
    fail("head {}: layer {} has {} KV heads", head, layer, geometry.layer(layer).kv_heads);
  return geometry.head(layer, head);
}

std::vector<int> PySession::slots_by_age(int flat) const {
  const Cache& cache = session_.cache();
  const SlotTable& table = cache.table(cache.table_of(flat));
  std::vector<int> slots;
  for (int slot = 0; slot < table.slots(); ++slot)
    if (table.position(slot) != kNoPosition) slots.push_back(slot);
  std::ranges::sort(slots, {}, [&](int slot) { return table.position(slot); });
  return slots;
}

std::vector<Position> PySession::positions(int layer, int head) {
  const auto locked = lock();
  const int flat = flat_head(layer, head);
  const SlotTable& table = session_.cache().table(session_.cache().table_of(flat));
  std::vector<Position> out;
  for (const int slot : slots_by_age(flat)) out.push_back(table.position(slot));
  return out;
}

std::vector<float> PySession::rows(What what, int layer, int head, int& width) {
  const auto locked = lock();
  const int flat = flat_head(layer, head);
  const Cache& cache = session_.cache();
  const SlotTable& table = cache.table(cache.table_of(flat));
  const std::vector<int> order = slots_by_age(flat);
  width = 1;
  std::vector<float> out;
  if (what == What::kScores) {
    session_.sequence().fetch_scores();
    for (const int slot : order) out.push_back(table.score()[at(slot)]);
    return out;
  }
  if (what == What::kWeights) {
    if (!session_.options().keep_weights) fail("attention weights are not kept: open the session with attention=True");
    const KeptWeights& kept = session_.sequence().kept_weights(flat);
    if (kept.weight.empty())
      fail(
          "there are no attention weights of this head: they are kept of decode steps, and not of layers with an "
          "attention window that the budget holds");
    std::vector<std::pair<Position, float>> by_age;
    for (std::size_t i = 0; i < kept.weight.size(); ++i)
      if (kept.position[i] != kNoPosition) by_age.emplace_back(kept.position[i], kept.weight[i]);
    std::ranges::sort(by_age);
    for (const auto& each : by_age) out.push_back(each.second);
    return out;
  }
  if (!cache.options().pages) fail("keys and values are on the device: this is supported on the CPU path only");
  const LayerView view = cache.view(layer);
  width = what == What::kKeys ? view.head_dim : view.value_dim;
  std::vector<float> all(at(table.slots()) * at(width));
  (what == What::kKeys ? read_keys : read_values)(view, cache.head(flat), all.data());
  out.reserve(order.size() * at(width));
  for (const int slot : order) out.insert(out.end(), &all[at(slot) * at(width)], &all[at(slot) * at(width)] + width);
  return out;
}

nb::dict PySession::statistics() {
  const Cache& cache = session_.cache();
  nb::dict out;
  out["cache_tokens"] = cache.occupied();
  out["cache_bytes"] = cache.bytes_in_use();
  out["cache_bytes_peak"] = cache.bytes_peak();
  out["evicted"] = cache.evicted();
  out["evictions"] = session_.times().evictions;
  out["evict_ms"] = session_.times().evict_ms;
  return out;
}

void bind_session(nb::module_& m) {
  const auto array = [](PySession& self, PySession::What what, int layer, int head) {
    int width = 1;
    std::vector<float> data;
    {
      const nb::gil_scoped_release released;
      data = self.rows(what, layer, head, width);
    }
    const std::size_t tokens = data.size() / static_cast<std::size_t>(width);
    const bool matrix = what == PySession::What::kKeys || what == PySession::What::kValues;
    return matrix ? as_array(std::move(data), {tokens, static_cast<std::size_t>(width)})
                  : as_array(std::move(data), {tokens});
  };
  const auto row = [](std::vector<float> data) {
    const std::size_t width = data.size();
    return as_array(std::move(data), {width});
  };
  nb::class_<PySession>(m, "Session")
      .def(
          "__init__",
          [](PySession* self, const PyModel& model, const std::string& method, const std::string& key_type,
             const std::string& value_type, int chunk, int page_size, bool layerwise, bool attention,
             bool record_memory) {
            const nb::gil_scoped_release released;
            SessionOptions options = model.options(method, key_type, value_type, chunk, page_size);
            options.layerwise = layerwise;
            options.keep_weights = attention;
            new (self) PySession(model, options, record_memory);
          },
          nb::arg("model"), nb::arg("method"), nb::arg("key_type"), nb::arg("value_type"), nb::arg("chunk"),
          nb::arg("page_size"), nb::arg("layerwise"), nb::arg("attention"), nb::arg("record_memory"))
      .def(
          "prefill",
          [row](PySession& self, const std::vector<TokenId>& tokens) {
            std::vector<float> logits;
            {
              const nb::gil_scoped_release released;
              logits = self.prefill(tokens);
            }
            return row(std::move(logits));
          },
          nb::arg("tokens"))
      .def(
          "decode",
          [row](PySession& self, TokenId token) {
            std::vector<float> logits;
            {
              const nb::gil_scoped_release released;
              logits = self.decode(token);
            }
            return row(std::move(logits));
          },
          nb::arg("token"))
      .def(
          "read",
          [](PySession& self, const std::vector<TokenId>& tokens) {
            std::vector<float> logits;
            {
              const nb::gil_scoped_release released;
              logits = self.read(tokens);
            }
            const std::size_t width = logits.size() / tokens.size();
            return as_array(std::move(logits), {tokens.size(), width});
          },
          nb::arg("tokens"))
      .def("rewind", &PySession::rewind, nb::arg("position"), nb::call_guard<nb::gil_scoped_release>())
      .def(
          "edit",
          [row](PySession& self, Position first, Position last, const std::vector<TokenId>& tokens,
                const std::string& mode) {
            std::vector<float> logits;
            {
              const nb::gil_scoped_release released;
              logits = self.edit(first, last, tokens, mode);
            }
            return row(std::move(logits));
          },
          nb::arg("first"), nb::arg("last"), nb::arg("tokens"), nb::arg("mode"))
      .def("clear", &PySession::clear, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "save",
          [](PySession& self, const std::string& path) {
            const nb::gil_scoped_release released;
            self.save(path, nullptr, -1);
          },
          nb::arg("path"))
      .def(
          "restore",
          [](PySession& self, const std::string& path) {
            const nb::gil_scoped_release released;
            return self.restore(path, nullptr);
          },
          nb::arg("path"))
      .def(
          "fork", [](PySession& self) { return self.fork().release(); }, nb::rv_policy::take_ownership,
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "positions",
          [](PySession& self, int layer, int head) {
            auto data = self.positions(layer, head);
            const std::size_t count = data.size();
            return as_array(std::vector<std::int64_t>(data.begin(), data.end()), {count});
          },
          nb::arg("layer"), nb::arg("head"))
      .def(
          "keys", [array](PySession& s, int l, int h) { return array(s, PySession::What::kKeys, l, h); },
          nb::arg("layer"), nb::arg("head"))
      .def(
          "values", [array](PySession& s, int l, int h) { return array(s, PySession::What::kValues, l, h); },
          nb::arg("layer"), nb::arg("head"))
      .def(
          "scores", [array](PySession& s, int l, int h) { return array(s, PySession::What::kScores, l, h); },
          nb::arg("layer"), nb::arg("head"))
      .def(
          "weights", [array](PySession& s, int l, int h) { return array(s, PySession::What::kWeights, l, h); },
          nb::arg("layer"), nb::arg("head"))
      .def("statistics", &PySession::statistics)
      .def_prop_ro("position", [](PySession& self) { return self.session().position(); })
      .def_prop_ro("step", &PySession::step)
      .def_prop_ro("tokens", &PySession::tokens)
      .def_prop_ro("method", [](PySession& self) { return spell_out(self.session().method()); });
}

}  // namespace palimpsest::python
