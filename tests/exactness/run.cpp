#include "tests/exactness/run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "palimpsest/core/gguf_file.h"
#include "palimpsest/engine/sequence/lockstep.h"
#include "tests/exactness/watch.h"
#include "tests/support/own_file.h"
#include "tests/support/rpc_server.h"
#include "tests/support/scorer_file.h"
#include "tests/support/test_device.h"

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

// Sampled from the model.
std::vector<TokenId> written_by(const std::shared_ptr<const Model>& model, TokenId bos, int tokens, unsigned seed) {
  SessionOptions options;
  options.method = parse_method("streaming:budget=256,positions=original");
  Session session(std::make_shared<Decoder>(model, 1), options);
  std::vector<TokenId> text = {bos};
  std::mt19937 random(seed);
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

// Of a sequence in lockstep.
int lockstep_prompt(int sequence) {
  return 1 + 7 * sequence;
}

// The prompt, then token by token. Lockstep: each sequence reads its prompt, then all step together.
std::vector<std::vector<Top>> read(Session& session, const Combination& how, std::span<const TokenId> text) {
  std::vector<std::vector<Top>> tops(1);
  const auto prompt = std::min(text.size(), static_cast<std::size_t>(how.timing.prompt));
  session.read(text.first(prompt),
               [&](long long, std::span<const float> logits) { tops[0].push_back(top_of(logits)); });
  for (std::size_t i = prompt; i < text.size(); ++i) tops[0].push_back(top_of(session.decode(text[i])));
  return tops;
}

std::vector<std::vector<Top>> read(Lockstep& lockstep, std::span<const std::vector<TokenId>> texts) {
  const auto count = static_cast<std::size_t>(lockstep.sequences());
  std::vector<std::vector<Top>> tops(count);
  for (std::size_t i = 0; i < count; ++i)  // the sequences are at different positions
    lockstep.session(static_cast<int>(i))
        .read(std::span(texts[i]).first(at(lockstep_prompt(static_cast<int>(i)))),
              [&](long long, std::span<const float> logits) { tops[i].push_back(top_of(logits)); });
  std::vector<TokenId> next(count);
  while (tops.back().size() < texts.back().size()) {
    for (std::size_t i = 0; i < count; ++i) next[i] = texts[i][tops[i].size()];
    const auto logits = lockstep.decode(next);
    const std::size_t width = logits.size() / count;
    for (std::size_t i = 0; i < count; ++i) tops[i].push_back(top_of(logits.subspan(i * width, width)));
  }
  return tops;
}

}  // namespace

UnevenBudgets::~UnevenBudgets() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

void UnevenBudgets::make(const Hyperparameters& hyper) {
  path_ = (std::filesystem::temp_directory_path() / ("palimpsest-split-" + std::to_string(::getpid()))).string();
  std::ofstream file(path_);
  for (int layer = 0; layer < hyper.layers; ++layer)
    for (int head = 0; head < hyper.geometry.layer(layer).kv_heads; ++head) {
      budgets_.push_back(kBudget - static_cast<int>(budgets_.size()) * 7 % 20);
      file << layer << ' ' << head << ' ' << budgets_.back() << '\n';
    }
}

const std::string& ScorerFile::made_for(const Model& model, const std::string& policy) {
  std::string& path = paths_[policy];
  if (path.empty()) {
    path = own_file("exactness." + policy);
    write_scorer(path, policy_model(model, {}), 1, policy);
  }
  return path;
}

ScorerFile::~ScorerFile() {
  for (const auto& [policy, path] : paths_) std::remove(path.c_str());
}

Laboratory::Laboratory(const std::string& gguf, int tokens) : gguf_(gguf) {
  split_.make(model(Path::kFast)->hyper());
  const auto bos = static_cast<TokenId>(GgufFile::open(gguf).integer("tokenizer.ggml.bos_token_id").value_or(1));
  for (const unsigned seed : {2309U, 17453U, 2306U})
    texts_.push_back(written_by(model(Path::kFast), bos, tokens, seed));
}

std::shared_ptr<const Model> Laboratory::model(Path path) {
  if (path == Path::kReference) path = Path::kFast;
  auto& model = models_[path];
  if (model == nullptr) {
    ModelOptions options;
    options.portable = path == Path::kPortable;
    if (path == Path::kVulkan) options.device = test_device();
    if (path == Path::kRpc) options.rpc = two_rpc_servers();
    model = Model::load(gguf_, options);
  }
  return model;
}

std::vector<Outcome> Laboratory::run(const Combination& how, const std::string& supposed) {
  const bool windows = drops_unseen(how.path);
  return run(how, supposed, 0, {windows, windows});
}

Outcome Laboratory::run_without_windows(const Combination& how) {
  return run(how, how.method(), 0, {.held = false, .supposed = true}).front();
}

bool Laboratory::drops_unseen(Path path) {
  const bool host_pages = path == Path::kReference || path == Path::kFast;
  return host_pages && model(Path::kFast)->hyper().geometry.windowed_layers() > 0;
}

namespace {

// Layers with an attention window hold all tokens.
std::shared_ptr<const MethodPlan> plan_without_windows(const Decoder& decoder, const SessionOptions& options) {
  PlanTarget target = plan_target(decoder, options);
  const HeadGeometry geometry = target.shape.geometry;
  target.shape.geometry =
      geometry.with_windows(std::vector<std::int32_t>(static_cast<std::size_t>(geometry.layers()), INT32_MAX));
  return std::make_shared<MethodPlan>(options.method, std::move(target));
}

}  // namespace

std::vector<Outcome> Laboratory::run(const Combination& how, const std::string& supposed, int first_text,
                                     Windows windows) {
  const auto model = this->model(how.path);
  SessionOptions options;
  options.method = parse_method(how.method());
  if (needs_scorer(options.method)) options.method.scorer = scorer_.made_for(*model, how.policy);
  options.cache_type = how.type;
  options.page_size = how.page_size;
  options.chunk = how.timing.chunk;

  const auto count = static_cast<std::size_t>(how.sequences);
  const auto length = static_cast<std::size_t>(std::min(tokens(), how.timing.max));
  std::vector<std::vector<TokenId>> texts;
  std::vector<std::unique_ptr<Truth>> truths;
  std::vector<Truth*> watched;
  for (std::size_t i = 0; i < count; ++i) {
    const auto& text = texts_[static_cast<std::size_t>(first_text) + i];
    texts.emplace_back(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(length));
    const long long prompt =
        count > 1 ? static_cast<long long>(lockstep_prompt(static_cast<int>(i)))
                  : static_cast<long long>(std::min<std::size_t>(length, static_cast<std::size_t>(how.timing.prompt)));
    truths.push_back(std::make_unique<Truth>(
        model->hyper(), TruthOptions{.method = parse_method(supposed),
                                     .type = how.type,
                                     .rotated = how.rotated(),
                                     .copied = how.copied(),
                                     .budgets = how.split == split_.path() ? split_.budgets() : std::vector<int>(),
                                     .page_size = how.page_size,
                                     .prompt = prompt,
                                     .same_score = same_score(how),
                                     .model = policy_model(*model, options.method),
                                     .windows = windows.supposed}));
    watched.push_back(truths.back().get());
  }
  const auto wrap = [&](std::unique_ptr<AttentionPath> path) -> std::unique_ptr<AttentionPath> {
    if (how.path == Path::kReference) path = std::make_unique<ReferencePath>(model->hyper());
    return std::make_unique<Watch>(std::move(path), watched);
  };
  const auto decoder = std::make_shared<Decoder>(model, how.threads, wrap);
  std::vector<std::vector<Top>> tops;
  if (count > 1) {
    Lockstep lockstep(decoder, options, how.sequences);
    tops = read(lockstep, texts);
  } else {
    Session session = windows.held == drops_unseen(how.path)
                          ? Session(decoder, options)
                          : Session(decoder, options, plan_without_windows(*decoder, options));
    tops = read(session, how, texts.front());
  }
  std::vector<Outcome> outcomes(count);
  for (std::size_t i = 0; i < count; ++i) outcomes[i] = {std::move(tops[i]), truths[i]->verdict()};
  return outcomes;
}

const Outcome& Laboratory::baseline(const Combination& how, int sequence) {
  const bool windows = drops_unseen(how.path);
  const auto [it, is_new] =
      baselines_.try_emplace(fmt::format("{} text {}{}", how.result(), sequence, windows ? " windows" : ""));
  if (is_new) {
    Combination base = how.baseline();
    if (how.sequences > 1) base.timing.prompt = lockstep_prompt(sequence);  // EMS's windows depend on its end
    it->second = run(base, base.method(), sequence, {windows, windows}).front();
  }
  return it->second;
}

namespace {

// The larger of of(key type) and of(value type).
template <typename Of>
double of_both(const CacheTypes& types, Of of) {
  return std::max(of(types.key), of(types.value));
}

double same_score_of(CacheType type) {
  // A query is rounded to 8 bits: the error of a score of s, e^error of its weight, is up to s / 100.
  if (kv_format(type).bits() < 8) return 3e-1;
  return type == CacheType::kF32 ? 2e-5 : type == CacheType::kF16 ? 1e-2 : type == CacheType::kBF16 ? 4e-2 : 1e-1;
}

double attention_bound_of(CacheType type) {
  // One code is 0.6 or 1 standard deviation of a rotated group, and a group may get another of two equally good scales.
  if (type == CacheType::kQ3) return 1e-1;
  if (type == CacheType::kQ2) return 2e-1;
  return type == CacheType::kF32 ? 1e-6 : type == CacheType::kF16 ? 4e-3 : type == CacheType::kBF16 ? 3e-2 : 5e-2;
}

}  // namespace

// Scores are sums of attention weights, which have the rounding errors of attention outputs.
double same_score(const Combination& how) {
  if (how.path == Path::kVulkan) return 5e-2;
  const double stored = of_both(how.type, same_score_of);
  const CacheType key = how.type.key;
  if (how.rerotated()) return std::max(stored, key == CacheType::kF32 ? 1e-4 : key == CacheType::kF16 ? 2e-2 : 1e-1);
  return stored;
}

double attention_bound(const Combination& how) {
  // Matrix products on Vulkan round both operands to f16. A key halfway between two numbers of a two-byte type may be
  // stored one step apart (2^-10 or 2^-7 of an element); scores up to 8 are not divided out.
  if (how.path == Path::kVulkan) return how.type == CacheType::kBF16 ? 3e-2 : 1e-2;
  const double stored = of_both(how.type, attention_bound_of);
  // A cluster is stored again whenever a token is merged into it, weighted by scores, which are rounded.
  if (how.merges()) return 1e-5;
  // A key is rotated and rounded again at each move, up to once per slot of the cache.
  const CacheType key = how.type.key;
  if (how.rerotated()) return std::max(stored, key == CacheType::kF32 ? 1e-5 : key == CacheType::kF16 ? 5e-2 : 4e-1);
  return stored;
}

namespace {

// The first token of the first step in which the two keep different tokens; `end` if there is none.
std::size_t parting(const Outcome& ours, const Outcome& base, std::size_t end) {
  auto theirs = base.verdict.kept.begin();
  for (const auto& [first, hash] : ours.verdict.kept) {
    while (theirs != base.verdict.kept.end() && theirs->first < first) ++theirs;
    if (theirs == base.verdict.kept.end()) break;
    if (theirs->first == first && theirs->second != hash) return std::min(end, static_cast<std::size_t>(first));
  }
  return end;
}

}  // namespace

bool may_part(const Outcome& ours, const Outcome& base, const Combination& how) {
  const bool close = ours.verdict.first_close >= 0 || base.verdict.first_close >= 0;
  return how.scored() && (close || how.type != CacheType::kF32 || how.path == Path::kVulkan || how.rerotated() ||
                          ours.verdict.first_tie >= 0 || base.verdict.first_tie >= 0);
}

TopDifference compare_tops(const Outcome& ours, const Outcome& base, const Combination& how, bool table_steps) {
  const bool vulkan = how.path == Path::kVulkan;
  const auto rounding_of = [&](CacheType type) {
    if (kv_format(type).bits() < 8) return 0.3;  // a query is rounded to 8 bits
    if (type == CacheType::kBF16 || type == CacheType::kQ8_0) return 5e-2;
    return type == CacheType::kF16 || vulkan ? 1e-2 : 1e-5;
  };
  const auto rounding = static_cast<float>(of_both(how.type, rounding_of));
  const float bound = std::max(how.rerotated() ? 10 * rounding : rounding, table_steps ? 2e-3F : 0);
  TopDifference difference;
  const std::size_t all = std::min(ours.top.size(), base.top.size());
  // The chunks of a masked window may differ, so its kept sets may differ too.
  const std::size_t end = how.windowed() ? all : parting(ours, base, all);
  difference.parted = end < all;
  for (std::size_t i = 0; i < end; ++i) {
    ++difference.compared;
    if (ours.top[i].token == base.top[i].token) continue;
    if (std::max(ours.top[i].lead, base.top[i].lead) <= bound) {
      ++difference.close;
      continue;
    }
    if (difference.wrong++ == 0) difference.first = static_cast<int>(i);
  }
  return difference;
}

}  // namespace palimpsest::testing
