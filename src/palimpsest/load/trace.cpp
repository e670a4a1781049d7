#include "palimpsest/load/trace.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

using nlohmann::json;

constexpr long long kMaxTracedTokens = 1LL << 28;  // of all prompts: 1 GiB

struct TracedRequest {
  long long in = 0, out = 0;
  std::vector<std::uint64_t> blocks;
  double think = 0;
};

std::uint64_t mixed(std::uint64_t x) {  // SplitMix64
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

template <typename Value>
Value number(const json& object, const char* name, Value fallback, Value min, Value max, const std::string& where) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return fallback;
  const bool kind = std::is_integral_v<Value> ? found->is_number_integer() : found->is_number();
  if (!kind || !(*found >= min && *found <= max))
    fail("{}: {} is {}: give a number from {} to {}", where, name, found->dump(), min, max);
  return found->get<Value>();
}

void add_requests(const json& requests, const std::string& where, int depth, std::vector<TracedRequest>& out) {
  if (!requests.is_array()) fail("{}: requests is no list", where);
  if (depth > 8) fail("{}: sub-agents of sub-agents, more than 8 levels", where);
  for (const json& request : requests) {
    if (!request.is_object()) fail("{}: a request is no JSON object", where);
    if (const auto nested = request.find("requests"); nested != request.end()) {
      add_requests(*nested, where, depth + 1, out);
      continue;
    }
    TracedRequest one;
    one.in = number(request, "in", -1LL, 1LL, kMaxTracedTokens, where);
    if (one.in < 0) fail("{}: a request without in, the number of its prompt's tokens", where);
    one.out = number(request, "out", 1LL, 0LL, kMaxTracedTokens, where);
    one.think = number(request, "think_time", 0.0, 0.0, 1e9, where);
    if (const auto ids = request.find("hash_ids"); ids != request.end()) {
      if (!ids->is_array()) fail("{}: hash_ids is no list", where);
      for (const json& id : *ids) {
        if (!id.is_number_integer() || id < 0) fail("{}: hash_ids has {}: ids are whole numbers", where, id.dump());
        one.blocks.push_back(id.get<std::uint64_t>());
      }
    }
    out.push_back(std::move(one));
  }
}

// The prompts of one session.
class Prompts {
 public:
  Prompts(const std::vector<TracedRequest>& requests, std::uint64_t text, std::uint64_t own, long long block,
          double scale, TokenId from, TokenId to)
      : requests_(requests),
        text_(text),
        own_(own),
        block_(block),
        scaled_block_(scaled(block, scale)),
        scale_(scale),
        from_(from),
        to_(to) {}

  static long long scaled(long long tokens, double scale) {
    return std::max(1LL, std::llround(static_cast<double>(tokens) * scale));
  }
  long long length(const TracedRequest& request) const {
    const long long full = full_blocks(request), rest = request.in - full * block_;
    return std::max(1LL, full * scaled_block_ + std::llround(static_cast<double>(rest) * scale_));
  }
  std::vector<TokenId> prompt(std::size_t index) const {
    const TracedRequest& request = requests_[index];
    const auto length = static_cast<std::size_t>(this->length(request));
    std::vector<TokenId> tokens;
    tokens.reserve(length + static_cast<std::size_t>(scaled_block_));
    for (const std::uint64_t id : request.blocks) add(tokens, mixed(text_ ^ mixed(id)), scaled_block_);
    if (tokens.size() < length)
      if (const auto next = next_block(index)) add(tokens, mixed(text_ ^ mixed(*next)), scaled_block_);
    if (tokens.size() < length) add(tokens, mixed(own_ ^ mixed(index)), static_cast<long long>(length - tokens.size()));
    tokens.resize(length);
    return tokens;
  }

 private:
  long long full_blocks(const TracedRequest& request) const {
    return std::min(std::ssize(request.blocks), static_cast<std::ptrdiff_t>(request.in / block_));
  }
  // The block behind those of a request, in a later one that begins with them.
  std::optional<std::uint64_t> next_block(std::size_t index) const {
    const auto& blocks = requests_[index].blocks;
    for (std::size_t later = index + 1; later < requests_.size(); ++later) {
      const auto& longer = requests_[later].blocks;
      if (longer.size() > blocks.size() && std::equal(blocks.rbegin(), blocks.rend(), longer.rend() - blocks.size()))
        return longer[blocks.size()];
    }
    return std::nullopt;
  }
  void add(std::vector<TokenId>& tokens, std::uint64_t seed, long long count) const {
    const auto range = static_cast<std::uint64_t>(to_ - from_);
    for (long long i = 0; i < count; ++i)
      tokens.push_back(from_ + static_cast<TokenId>(mixed(seed + static_cast<std::uint64_t>(i)) % range));
  }

  const std::vector<TracedRequest>& requests_;
  std::uint64_t text_, own_;
  long long block_, scaled_block_;
  double scale_;
  TokenId from_, to_;
};

// Tokens that the last of `session` has in common with the beginning of another of them.
long long repeated_tokens(std::span<const LoadRequest> session) {
  const auto& last = session.back().prompt;
  std::ptrdiff_t most = 0;
  for (const LoadRequest& before : session.first(session.size() - 1)) {
    const auto end = std::min(std::ssize(before.prompt), std::ssize(last));
    if (end <= most || before.prompt[most] != last[most]) continue;
    most = std::max(most, std::mismatch(last.begin(), last.begin() + end, before.prompt.begin()).first - last.begin());
  }
  return most;
}

}  // namespace

std::vector<LoadRequest> recorded_sessions(std::string_view lines, const std::string& path, const TraceOptions& options,
                                           TokenId from, TokenId to, std::uint32_t seed) {
  std::vector<LoadRequest> load;
  int session = 0;
  long long tokens = 0;
  for (int line = 1; !lines.empty() && (options.sessions == 0 || session < options.sessions); ++line) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view text = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = fmt::format("{}, line {}", path, line);
    const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object() || !object.contains("requests"))
      fail("{}: this is no session, a JSON object with requests", where);
    const long long block = number(object, "block_size", 64LL, 1LL, 1LL << 20, where);
    const json scope = object.value("hash_id_scope", json("local"));
    if (scope != "local" && scope != "global") fail("{}: hash_id_scope is {}: local or global", where, scope.dump());
    std::vector<TracedRequest> requests;
    add_requests(object["requests"], where, 0, requests);
    const std::uint64_t own = mixed(seed ^ mixed(static_cast<std::uint64_t>(session) + 1));
    const Prompts prompts(requests, scope == "local" ? own : mixed(seed), mixed(own), block, options.scale, from, to);
    const std::size_t first = load.size();
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const long long length = prompts.length(requests[i]), output = Prompts::scaled(requests[i].out, options.scale);
      if (options.max_len > 0 && length + output > options.max_len) continue;
      tokens += length;
      if (tokens > kMaxTracedTokens)
        fail("{}: the prompts have more than {} tokens: replay fewer sessions, or scale them", where, kMaxTracedTokens);
      const double think = load.size() == first ? 0 : requests[i].think * options.think_scale;
      load.push_back({.prompt = prompts.prompt(i), .output = output, .session = session, .think = think});
      load.back().repeated = repeated_tokens(std::span(load).subspan(first));
    }
    ++session;
  }
  if (load.empty()) fail("{} has no request to replay", path);
  return load;
}

}  // namespace palimpsest
