#include "tests/support/teacher_forced.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <span>

namespace palimpsest::testing {

namespace {

class Runner {
 public:
  Runner(const std::shared_ptr<const Model>& model, const TeacherForced& how)
      : how_(how), decoder_(model, 1), cache_(options()) {
    if (!how.uneven || !how.rule.has_window()) return;
    for (int t = 0; t < cache_.tables(); ++t) windows_.push_back(budget_of(how, t) - how.rule.sinks);
    how_.rule.head_window = windows_;
  }

  Trace run(const std::vector<TokenId>& tokens) {
    std::size_t first = 0;
    for (int step = 0; first < tokens.size(); ++step) {
      drop(1);
      const std::size_t max = how_.rule.has_window() || how_.budget == 0
                                  ? static_cast<std::size_t>(how_.chunk)
                                  : static_cast<std::size_t>(std::min(how_.chunk, how_.budget - cache_.occupied()));
      const auto part = std::span(tokens).subspan(first, std::min(max, tokens.size() - first));
      if (how_.undo > 0 && step % 5 == 4) {  // other tokens, like a rejected draft
        std::vector<TokenId> draft(part.begin(), part.end());
        std::ranges::reverse(draft);
        cache_.insert(static_cast<int>(draft.size()));
        one_step(draft, nullptr);
        cache_.undo(static_cast<int>(draft.size()));
      }
      cache_.insert(static_cast<int>(part.size()));
      one_step(part, &trace_);
      first += part.size();
      if (how_.chunk > 1) drop(0);
    }
    trace_.bytes = cache_.bytes_in_use();
    return std::move(trace_);
  }

 private:
  CacheOptions options() const {
    CacheOptions o = decoder_.cache_options();
    o.geometry = o.geometry.with_types(how_.type, how_.type);
    o.mechanism = how_.mechanism;
    o.shared = how_.shared;
    o.track_rank = how_.rule.rotation == Rotation::kOnRead;
    return o;
  }

  void one_step(std::span<const TokenId> tokens, Trace* trace) {
    SequenceStep step{.cache = &cache_, .rule = how_.rule, .tokens = tokens, .all_logits = true};
    std::vector<std::vector<float>> weights;
    std::vector<float*> rows;
    if (how_.weights)
      for (int head = 0; head < cache_.geometry().heads(); ++head)
        weights.emplace_back(cache_.table(cache_.table_of(head)).slots(), NAN);
    for (auto& w : weights) rows.push_back(w.data());
    if (how_.weights) step.weights = rows.data();
    const auto logits = decoder_.step({&step, 1});
    if (trace == nullptr) return;
    trace->logits.insert(trace->logits.end(), logits.begin(), logits.end());
    for (const auto& w : weights) trace->weights.insert(trace->weights.end(), w.begin(), w.end());
  }

  void drop(int room) {
    if (how_.budget == 0) return;
    Victims plan;
    for (int t = 0; t < cache_.tables(); ++t) plan.drop.push_back(victims(cache_.table(t), budget_of(how_, t) - room));
    cache_.apply(plan);
  }
  std::vector<int> victims(const SlotTable& table, int keep) {
    std::vector<int> slots;
    for (int s = 0; s < table.slots(); ++s)
      if (table.position()[s] != kNoPosition && !(how_.by_window && table.position()[s] < how_.rule.sinks))
        slots.push_back(s);
    const auto oldest_first = [&](int a, int b) { return table.position()[a] < table.position()[b]; };
    std::ranges::sort(slots, oldest_first);
    if (!how_.by_window) std::shuffle(slots.begin(), slots.end(), lot_);
    slots.resize(static_cast<std::size_t>(std::max(0, table.occupied() - keep)));
    std::ranges::sort(slots, oldest_first);
    return slots;
  }

  TeacherForced how_;
  Decoder decoder_;
  Cache cache_;
  Trace trace_;
  std::mt19937 lot_{11};
  std::vector<std::int32_t> windows_;
};

}  // namespace

int budget_of(const TeacherForced& how, int table) {
  return how.uneven ? how.budget - table * 7 % (how.budget / 2) : how.budget;
}

Trace run(const std::shared_ptr<const Model>& model, const TeacherForced& how, const std::vector<TokenId>& tokens) {
  return Runner(model, how).run(tokens);
}

double max_relative_error(const std::vector<float>& a, const std::vector<float>& b, int width) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  for (std::size_t row = 0; row < a.size(); row += static_cast<std::size_t>(width)) {
    double error = 0, size = 0;
    for (std::size_t i = row; i < row + static_cast<std::size_t>(width); ++i) {
      if (!std::isfinite(a[i])) return INFINITY;
      error = std::max(error, std::abs(static_cast<double>(a[i]) - b[i]));
      size = std::max(size, std::abs(static_cast<double>(b[i])));
    }
    worst = std::max(worst, error / size);
  }
  return worst;
}

std::vector<TeacherForced> every_kind(int budget, CacheType type) {
  constexpr int kSinks = 4;
  const AttentionRule original{.rotation = Rotation::kOnWrite, .sinks = kSinks, .window = budget - kSinks};
  AttentionRule two_query = original;
  two_query.two_query = true;
  const AttentionRule late{.rotation = Rotation::kOnRead};
  AttentionRule late_two_query = two_query;
  late_two_query.rotation = Rotation::kOnRead;
  const AttentionRule none{.rotation = Rotation::kNever};

  std::vector<TeacherForced> kinds = {{.name = "full"}, {.name = "full, chunks", .chunk = 48}};
  for (const Mechanism mechanism : {Mechanism::kInPlace, Mechanism::kShift}) {
    const std::string with = mechanism == Mechanism::kShift ? ", shift" : ", in place";
    for (const int chunk : {1, 19}) {
      const std::string name = with + (chunk > 1 ? ", chunks" : "");
      const TeacherForced base{.name = {}, .budget = budget, .mechanism = mechanism, .chunk = chunk};
      const auto add = [&](const char* what, const AttentionRule& rule, bool by_window, bool shared,
                           bool uneven = false) {
        TeacherForced kind = base;
        kind.name = what + name;
        kind.rule = rule;
        kind.by_window = by_window;
        kind.shared = shared;
        kind.uneven = uneven;
        kind.weights = !by_window;
        kind.undo = !by_window && shared ? 1 : 0;
        kinds.push_back(kind);
      };
      add("window, original positions", original, true, true);
      add("window, two queries", two_query, true, true);
      add("window, late rotation", late, true, true);
      add("any victims, late rotation", late, false, true);
      add("any victims of each head", AttentionRule{}, false, false);
      add("any victims of each head, budgets too, late rotation", late, false, false, true);
      add("windows of each head, two queries", two_query, true, false, true);
      if (chunk > 1) add("windows of each head, late rotation, two queries", late_two_query, true, false, true);
      if (chunk > 1) add("no rotation", none, false, true);
    }
  }
  for (TeacherForced& kind : kinds) {
    kind.type = type;
    if (kind.rule.rotation == Rotation::kOnRead && kind.by_window) kind.rule.sinks = kSinks;
  }
  return kinds;
}

}  // namespace palimpsest::testing
