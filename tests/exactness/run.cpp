#include "tests/exactness/run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

#include "palimpsest/engine/session.h"
#include "tests/exactness/watch.h"

namespace palimpsest::testing {

namespace {

Top top_of(std::span<const float> logits) {
  Top top{0, 0};
  float best = -INFINITY, second = -INFINITY, size = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    size = std::max(size, std::abs(logits[i]));
    if (logits[i] > best) {
      second = best;
      best = logits[i];
      top.token = static_cast<TokenId>(i);
    } else {
      second = std::max(second, logits[i]);
    }
  }
  top.lead = (best - second) / size;
  return top;
}

// A text that the model itself would write.
std::vector<TokenId> written_by(const std::shared_ptr<const Model>& model, int tokens) {
  SessionOptions options;
  options.method = parse_method("streaming:budget=256");
  Session session(std::make_shared<Decoder>(model, 1), options);
  std::vector<TokenId> text = {1};
  std::mt19937 random(2309);
  while (static_cast<int>(text.size()) < tokens) {
    const auto logits = session.decode(text.back());
    const float best = *std::ranges::max_element(logits);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - best);
    double left = sum * (static_cast<double>(random()) / 4294967296.0);
    TokenId token = 0;
    while (token + 1 < static_cast<TokenId>(logits.size()) &&
           (left -= std::exp(static_cast<double>(logits[static_cast<std::size_t>(token)]) - best)) > 0)
      ++token;
    text.push_back(token);
  }
  return text;
}

}  // namespace

Laboratory::Laboratory(const std::string& gguf, int tokens) : gguf_(gguf) {
  text_ = written_by(model(Path::kFast), tokens);
}

std::shared_ptr<const Model> Laboratory::model(Path path) {
  if (path == Path::kReference) path = Path::kFast;
  auto& model = models_[path];
  if (model == nullptr) {
    ModelOptions options;
    options.portable = path == Path::kPortable;
    if (path == Path::kVulkan) options.device = "Vulkan0";
    model = Model::load(gguf_, options);
  }
  return model;
}

Outcome Laboratory::run(const Combination& how, const std::string& supposed) {
  const auto start = std::chrono::steady_clock::now();
  const auto model = this->model(how.path);
  SessionOptions options;
  options.method = parse_method(how.method());
  options.cache_type = how.type;
  options.page_size = how.page_size;
  options.chunk = how.schedule.chunk;

  const Rotation rotation = attention_rule(options.method, model->hyper().rope.kind).rotation;
  const bool shared = options.method.policy == "none" || make_policy(options.method.policy)->needs().positions_only();
  Truth truth(model->hyper(), parse_method(supposed), how.type, rotation == Rotation::kAtWrite, shared);
  const auto wrap = [&](std::unique_ptr<AttentionPath> path) -> std::unique_ptr<AttentionPath> {
    if (how.path == Path::kReference) path = std::make_unique<ReferencePath>(model->hyper());
    return std::make_unique<Watch>(std::move(path), std::vector<Truth*>{&truth});
  };
  Session session(std::make_shared<Decoder>(model, 1, wrap), options);
  Outcome outcome;
  session.read(text_, [&](long long, std::span<const float> logits) { outcome.top.push_back(top_of(logits)); });
  outcome.verdict = truth.verdict();
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return outcome;
}

const Outcome& Laboratory::baseline(const Combination& how) {
  const auto [it, is_new] = baselines_.try_emplace(how.result());
  if (is_new) it->second = run(how.baseline());
  return it->second;
}

double attention_bound(const Combination& how) {
  // A product of matrices on Vulkan rounds both sides to f16. A key on the edge between two numbers of a two-byte type
  // is stored one step apart: 2^-10 or 2^-7 of an element, and there are scores of 8 before they are divided out.
  if (how.path == Path::kVulkan) return how.type == CacheType::kBF16 ? 3e-2 : 1e-2;
  switch (how.type) {
    case CacheType::kF32:
      return 1e-6;
    case CacheType::kF16:
      return 4e-3;
    case CacheType::kBF16:
      return 3e-2;
  }
  return 0;
}

TopDifference compare_tops(const Outcome& ours, const Outcome& base, CacheType type, Path path) {
  const float rounding = path == Path::kVulkan     ? 1e-2F
                         : type == CacheType::kF32 ? 1e-5F
                         : type == CacheType::kF16 ? 2e-3F
                                                   : 1e-2F;
  TopDifference difference;
  std::size_t end = std::min(ours.top.size(), base.top.size());
  for (const Outcome* each : {&ours, &base})
    if (each->verdict.first_tie >= 0) end = std::min(end, static_cast<std::size_t>(each->verdict.first_tie));
  for (std::size_t i = 0; i < end; ++i) {
    ++difference.compared;
    if (ours.top[i].token == base.top[i].token) continue;
    if (std::max(ours.top[i].lead, base.top[i].lead) <= rounding) {
      ++difference.close;
      continue;
    }
    if (difference.wrong++ == 0) difference.first = static_cast<int>(i);
  }
  return difference;
}

}  // namespace palimpsest::testing
