#include "palimpsest/load/load.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

constexpr long long kMax = 1LL << 30;  // tokens of one request

std::vector<TokenId> random_prompt(long long length, TokenId from, TokenId to, std::mt19937& generator) {
  std::uniform_int_distribution<TokenId> any(from, to - 1);
  std::vector<TokenId> tokens(static_cast<std::size_t>(length));
  for (auto& token : tokens) token = any(generator);
  return tokens;
}

// One line of a recorded load.
struct Line {
  const nlohmann::json& object;
  std::string where;

  const nlohmann::json* find(const char* name) const {
    const auto found = object.find(name);
    return found == object.end() ? nullptr : &*found;
  }
  long long length(const char* name, long long fallback) const {
    const auto* value = find(name);
    if (value == nullptr) return fallback;
    if (!value->is_number_integer() || *value < 1 || *value > kMax)
      fail("{}: {} is {}: give a number from 1 to {}", where, name, value->dump(), kMax);
    return value->get<long long>();
  }
  double seconds() const {
    const auto* value = find("at");
    if (value == nullptr) return 0;
    if (!value->is_number() || !(*value >= 0 && *value <= 1e7))
      fail("{}: at is {}: give seconds after the beginning", where, value->dump());
    return value->get<double>();
  }
  void prompt(LoadRequest& request, long long length, TokenId from, TokenId to, std::mt19937& generator) const {
    const auto* value = find("prompt");
    if (value == nullptr) {
      request.prompt = random_prompt(length, from, to, generator);
    } else if (value->is_string() && !value->get_ref<const std::string&>().empty()) {
      request.text = *value;
    } else {
      const bool tokens = value->is_array() && !value->empty() && std::ranges::all_of(*value, [](const auto& token) {
                            return token.is_number_integer() && token >= 0 && token <= INT32_MAX;
                          });
      if (!tokens) fail("{}: prompt is neither a text nor a list of tokens", where);
      request.prompt = value->get<std::vector<TokenId>>();
    }
  }
};

}  // namespace

std::vector<LoadRequest> random_load(int count, const Lengths& lengths, TokenId from, TokenId to, std::uint32_t seed) {
  std::mt19937 generator(seed);
  const std::vector<TokenId> prefix = random_prompt(lengths.prefix, from, to, generator);
  std::vector<LoadRequest> requests(static_cast<std::size_t>(count));
  for (auto& request : requests) {
    request = {.prompt = prefix, .output = lengths.output};
    std::ranges::copy(random_prompt(lengths.input, from, to, generator), std::back_inserter(request.prompt));
  }
  return requests;
}

RecordedLoad recorded_load(std::string_view lines, const std::string& path, const Lengths& fallback, TokenId from,
                           TokenId to, std::uint32_t seed) {
  std::mt19937 generator(seed);
  RecordedLoad load;
  std::size_t timed = 0;
  for (int number = 1; !lines.empty(); ++number) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view text = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const auto object = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    const Line line{object, fmt::format("{}, line {}", path, number)};
    if (!object.is_object()) fail("{}: this is no JSON object", line.where);
    for (const auto& [name, value] : object.items())
      if (name != "prompt" && name != "input_len" && name != "output_len" && name != "at")
        fail("{}: unknown field '{}': there are prompt, input_len, output_len and at", line.where, name);
    LoadRequest request;
    line.prompt(request, line.length("input_len", fallback.input), from, to, generator);
    request.output = line.length("output_len", fallback.output);
    request.at = line.seconds();
    timed += line.find("at") != nullptr ? 1 : 0;
    load.requests.push_back(std::move(request));
  }
  if (load.requests.empty()) fail("{} has no request: give a JSON object on each line", path);
  if (timed != 0 && timed != load.requests.size())
    fail("{}: {} of {} lines say when they come ('at'): all must, or none", path, timed, load.requests.size());
  load.timed = timed != 0;
  std::ranges::stable_sort(load.requests, {}, &LoadRequest::at);
  return load;
}

bool begins_session(const std::vector<LoadRequest>& requests, std::size_t index) {
  const int session = requests[index].session;
  return session < 0 || index == 0 || requests[index - 1].session != session;
}

void set_arrival_times(std::vector<LoadRequest>& requests, double per_second, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::exponential_distribution<double> gap(1);
  double at = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (i > 0 && std::isfinite(per_second) && begins_session(requests, i)) at += gap(generator) / per_second;
    requests[i].at = at;
  }
}

}  // namespace palimpsest
